"""Signal for swapping: a process reads files and writes them back repeatedly, as they do not fit into memory."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ckptprof.detect.events.event_context import EventContext
from ckptprof.detect.events.grouping import LOOSE_GAP_NS
from ckptprof.detect.tolerances import LITTLE_SHARE, MOST_SHARE, PATIENCE_NS
from ckptprof.detect.transfers.model.transfer import Transfer

_SWAP_SUFFIX = ".swp"  # DeepSpeed's, of states and of parameters


def is_swapped(event: EventContext) -> bool:
    """Return True if processes read most of the data just before they write it again: the data is swapped, not saved.

    Optimizer states and activations are swapped so. A checkpoint that is checked is read right after it was written; a
    change in a step's folder is part of that save; and a file with a state's name is a state: a running average of the
    weights is read, changed and saved again.
    """
    if event.holds_for_most_bytes(_is_named_state):
        return False
    swapped_bytes = 0
    window = event.start_ns - PATIENCE_NS, event.end_ns + PATIENCE_NS
    for process in dict.fromkeys(part.process for part in event.largest_parts):
        parts = [part for part in event.largest_parts if part.process == process]
        transfers_by_file = event.known.transfers.recent.of_files(process, {part.file for part in parts}, *window)
        swapped_bytes += sum(part.bytes for part in parts if _is_file_swapped(event, transfers_by_file[part.file]))
    return 2 * swapped_bytes > sum(part.bytes for part in event.largest_parts)


def _is_named_state(part: Transfer) -> bool:
    named = part.name.state or (part.name.hint and part.name.framework is not None)
    return part.name.is_certain or (named and not part.path.endswith(_SWAP_SUFFIX))


def _is_file_swapped(event: EventContext, transfers: Sequence[Transfer]) -> bool:
    written = [one for one in transfers if one.writes]
    if any(one.operations is not None for one in transfers):
        read = [one for one in transfers if not one.writes]
        turns = sum(_was_just_read(one, read) for one in written)
    else:
        turns = sum(_was_read_between(event, *pair) for pair in itertools.pairwise(written))
    return turns > 1  # once: a state that is read, changed and saved again


def _was_just_read(written: Transfer, read: Sequence[Transfer]) -> bool:
    start_ns = written.data_span[0]
    return any(
        one.data_span[0] <= start_ns <= one.data_span[1] + LOOSE_GAP_NS
        and one.transferred_bounds.best >= MOST_SHARE * written.transferred_bounds.best
        for one in read
    )


def _was_read_between(event: EventContext, earlier: Transfer, later: Transfer) -> bool:
    """Compare the bytes read between two writes of a file with the bytes written, by process counters.

    If the writes are further apart it may read other files: then it must have read nothing in the middle of that
    time, and this file at its end. A read as a check comes at its start.
    """
    low_ns, high_ns = earlier.last_ns, later.span[1]
    size = sum({part.file: part.size_in_use for part in event.largest_parts}.values())
    returned = event.world.histories[later.process].returned_bytes
    gap_ns = later.first_ns - low_ns
    if returned(low_ns, high_ns) < MOST_SHARE * size:
        return False
    reads_ns = later.first_ns - gap_ns // 4
    return gap_ns <= LOOSE_GAP_NS or (
        returned(low_ns + gap_ns // 4, reads_ns) <= LITTLE_SHARE * size
        and returned(reads_ns, high_ns) >= MOST_SHARE * later.size_in_use
    )
