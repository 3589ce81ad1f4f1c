"""Swapping: a process reads files and writes them back, again and again, as they do not fit into memory."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ckptprof.detect.events.event import Event
from ckptprof.detect.events.grouping import LOOSE_GAP_NS
from ckptprof.detect.tolerances import LITTLE_SHARE, MOST_SHARE, PATIENCE_NS
from ckptprof.detect.transfers.model.transfer import Transfer

_SWAP = ".swp"  # DeepSpeed's, of states and of parameters
_TURNS = 2  # once: a state that is read, changed and saved again


def swapped(event: Event) -> bool:
    """Return whether one process reads most of it whole just before it rewrites it, each time.

    Optimizer states and activations are swapped so. A checkpoint that is checked is read right after it was written; a
    change in a step's folder is part of that save; and a file with a state's name is a state: a running average of the
    weights is read, changed and saved again.
    """
    if event.mostly(_is_named_state):
        return False
    moved = 0
    near = event.start_ns - PATIENCE_NS, event.end_ns + PATIENCE_NS
    for process in dict.fromkeys(part.process for part in event.largest):
        parts = [part for part in event.largest if part.process == process]
        done = event.known.transfers.recent.of_files(process, {part.file for part in parts}, *near)
        moved += sum(part.bytes for part in parts if _is_swapped(event, done[part.file]))
    return 2 * moved > sum(part.bytes for part in event.largest)


def _is_named_state(part: Transfer) -> bool:
    named = part.name.state or (part.name.hint and part.name.framework is not None)
    return part.name.certain or (named and not part.path.endswith(_SWAP))


def _is_swapped(event: Event, done: Sequence[Transfer]) -> bool:
    written = [one for one in done if one.writes]
    if any(one.operations is not None for one in done):
        read = [one for one in done if not one.writes]
        turns = sum(_was_just_read(one, read) for one in written)
    else:
        turns = sum(_was_read_between(event, *pair) for pair in itertools.pairwise(written))
    return turns >= _TURNS


def _was_just_read(written: Transfer, read: Sequence[Transfer]) -> bool:
    begin_ns = written.data_span[0]
    return any(
        one.data_span[0] <= begin_ns <= one.data_span[1] + LOOSE_GAP_NS
        and one.moved.best >= MOST_SHARE * written.moved.best
        for one in read
    )


def _was_read_between(event: Event, earlier: Transfer, later: Transfer) -> bool:
    """Return whether a process read as much as it writes in all between two writes of a file, by its counters.

    Where these do not follow at once it may read other files: then it must have read nothing in the middle of that
    time, and this file at its end. A read as a check comes at its start.
    """
    low_ns, high_ns = earlier.last_ns, later.span[1]
    size = sum({part.file: part.used_size for part in event.largest}.values())
    returned = event.world.histories[later.process].returned_bytes
    gap_ns = later.first_ns - low_ns
    if returned(low_ns, high_ns) < MOST_SHARE * size:
        return False
    reads_ns = later.first_ns - gap_ns // 4
    return gap_ns <= LOOSE_GAP_NS or (
        returned(low_ns + gap_ns // 4, reads_ns) <= LITTLE_SHARE * size
        and returned(reads_ns, high_ns) >= MOST_SHARE * later.used_size
    )
