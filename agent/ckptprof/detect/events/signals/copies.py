"""Signals for copies: the same processes read in one place what they write to another, at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ckptprof.detect.events.event_context import EventContext
from ckptprof.detect.events.grouping import CERTAIN_GAP_NS, LOOSE_GAP_NS
from ckptprof.detect.events.signal_values import SignalMatch
from ckptprof.detect.tolerances import (
    AT_ONCE_NS,
    CODE_BYTES,
    COUNTER_LAG_NS,
    HEADER_BYTES,
    LITTLE_SHARE,
    MOST_SHARE,
    NEARLY_ALL,
    SIMILAR_SHARE,
    is_similar_size,
)
from ckptprof.detect.transfers.model.group import level_of
from ckptprof.detect.transfers.model.operations import copies_in_kernel
from ckptprof.detect.transfers.model.traced_transfer import TracedTransfer
from ckptprof.detect.transfers.model.transfer import Transfer, share_within
from ckptprof.detect.world.keys import FileKey
from ckptprof.detect.world.spans import Span, length, overlap_ns
from ckptprof.frameworks.file_formats import ARCHIVES
from ckptprof.frameworks.file_names import parse_name
from ckptprof.model import Level

_STARTUP_NS = 5_000_000_000


def match_copy(event: EventContext) -> SignalMatch | None:
    """Match what the same processes transferred the other way: as many bytes, or a checkpoint that they convert."""
    if event.producers != event.processes or not event.holds_for_most_bytes(lambda part: part.staging_file is None):
        return None  # from a staging file of the same job, or from a pipe: one save
    sources = find_counterparts(event)
    if sources:
        text = f"copied or converted {'from' if event.writes else 'to'} {sources[0].file_name[:40]!r}"
        return SignalMatch(text, "copies-exactly")
    return _match_unpacking(event) or _match_flow(event)


def find_counterparts(event: EventContext) -> list[Transfer]:
    """Return the files in the other direction of which it is a copy, or a conversion."""
    if event.counterparts is None:  # several signals ask
        event.counterparts = _find_counterparts(event)
    return event.counterparts


def _find_counterparts(event: EventContext) -> list[Transfer]:
    sizes: dict[int, list[Transfer]] = {}
    remaining = _transferred_other_way(event, COUNTER_LAG_NS)
    for transfer in remaining:
        sizes.setdefault(transfer.size_in_use, []).append(transfer)
    explained, counted_bytes, found = 0, 0, []
    for part in event.largest_parts if sizes else ():
        if part.bytes < HEADER_BYTES or part.staging_file is not None:
            continue
        counted_bytes += part.bytes
        for transfer in sizes.get(part.stored_size, ()):
            # one read is one copy; layers have the same size
            if remaining[transfer] * 2 > part.bytes and not (event.writes and _is_of_another_step(part, transfer)):
                remaining[transfer] -= part.bytes
                explained += part.bytes
                found.append(transfer)
                break
    return found if explained * 2 > counted_bytes else _find_converted(event)


def _find_converted(event: EventContext) -> list[Transfer]:
    """Return the saves that it is made from, or what was made from it: a tenth at least.

    Saves of other processes at once, own ones in step. A base model that is read beside a save, to make one of both, is
    a source as well.
    """
    since_ns, until_ns = (CERTAIN_GAP_NS, 0) if event.writes else (0, CERTAIN_GAP_NS)
    window = event.start_ns - since_ns, event.end_ns + until_ns
    own, nearby = {part.file for part in event.parts}, event.transfers_between(*window, writes=not event.writes)
    others = [one for one in nearby if one.file not in own and _is_at_once(event, one)]
    sources = others if event.writes else {*event.parts, *event.transfers_between(*window, writes=False)}
    saved = [one for one in sources if event.is_made_by_others(one.path)]
    if not saved and (in_step := _files_in_step(event, others)):
        read = (one for one in others if one.file in in_step) if event.writes else event.parts
        saved = [one for one in read if (author := event.known.history.author_of(one.path)) and not author.is_rejected]
    saved_bytes = sum({one.file: one.size_in_use for one in saved}.values())
    if event.writes:
        return saved if saved_bytes >= LITTLE_SHARE * event.bytes else []
    return others if 0 < LITTLE_SHARE * saved_bytes <= sum(one.size_in_use for one in others) else []


def _files_in_step(event: EventContext, others: Sequence[Transfer]) -> list[FileKey]:
    """Return the files that were transferred from its first to its last byte: no run resumes so."""
    own, spans = (event.start_ns, event.end_ns), dict[FileKey, Span]()
    for one in others:
        if not _is_of_another_step(event.parts[0], one):  # it may be read in pieces
            piece, before = one.data_span, spans.get(one.file, one.data_span)
            spans[one.file] = min(before[0], piece[0]), max(before[1], piece[1])
    shares = {file: overlap_ns(one, [own]) / max(length([one]), length([own]), 1) for file, one in spans.items()}
    return [file for file, share in shares.items() if share >= MOST_SHARE]


def _is_at_once(event: EventContext, other: Transfer) -> bool:
    """Compare the pause between both, less what the process waited for a CPU: others may load the host."""
    pause = (other.data_span[1], event.start_ns) if event.writes else (event.end_ns, other.data_span[0])
    waited_ns = event.world.threads.runqueue_ns(other.process, *pause)
    return pause[1] - pause[0] - waited_ns <= LOOSE_GAP_NS


def _is_of_another_step(part: Transfer, other: Transfer) -> bool:
    """Compare steps: states of different steps have the same size."""
    steps = part.name.step, parse_name(other.path).step
    return None not in steps and steps[0] != steps[1]


def _match_unpacking(event: EventContext) -> SignalMatch | None:
    """Match a concurrent read of an archive: its content may be larger than itself."""
    for transfer, transferred in _transferred_other_way(event, AT_ONCE_NS).items() if event.writes else ():
        if transfer.path.endswith(ARCHIVES) and transferred > LITTLE_SHARE * event.bytes:
            text = f"unpacked from {transfer.file_name[:40]!r}, which its process read at the same time"
            return SignalMatch(text, "copies-exactly")
    return None


def _match_flow(event: EventContext) -> SignalMatch | None:
    """Match the sums: packing, splitting, or many files at once; a trainer may read data while it saves."""
    flow = _flow_of(event)
    if flow is None or not flow.written or not is_similar_size(flow.read, flow.written):
        return None
    if flow.in_kernel * 2 > (flow.written if event.writes else flow.read):
        return SignalMatch("copied by the kernel from file to file, as much read as written", "copies-exactly")
    if flow.simultaneous is None or not event.is_training:
        return SignalMatch("its process read as much as it wrote, at the same time", "copies-in-sum")
    is_in_step = flow.simultaneous >= (1 - SIMILAR_SHARE) * flow.written
    return SignalMatch("its process read as much as it wrote, in step", "copies-exactly") if is_in_step else None


def _transferred_other_way(event: EventContext, slack_ns: int) -> dict[Transfer, int]:
    """Return the files that the same processes transferred mostly, in the other direction, with their bytes.

    What was read after the last byte was written is no source of it.
    """
    found, window = {}, (event.start_ns - slack_ns, event.end_ns + slack_ns)
    for transfer in event.transfers_between(*window, writes=not event.writes):
        first, last = (transfer.span[0], event.end_ns) if event.writes else (event.start_ns, transfer.span[1])
        if first > last:
            continue
        transferred = _transferred_bytes(transfer, event)
        if transfer.file not in event.own_files and transferred * 2 > transfer.size_in_use:
            found[transfer] = transferred
    return found


def _transferred_bytes(transfer: Transfer, event: EventContext) -> int:
    """Return the transferred bytes of a file; where only their bounds are known, counters may cover all of it."""
    min_bytes, best_bytes, max_bytes = transfer.transferred_bounds
    size, history = transfer.size_in_use, event.world.histories[transfer.process]
    if best_bytes * 2 > size or min_bytes == max_bytes:
        return best_bytes
    start_ns, end_ns = transfer.data_span
    window = min(start_ns, event.start_ns), max(end_ns, event.end_ns)
    transferred = history.returned_bytes(*window) if event.writes else history.wrote_bytes(*window)
    return size if transferred >= NEARLY_ALL * size else best_bytes


class _Flow(NamedTuple):
    """What the processes of an event read and wrote during it, except its own files, in bytes."""

    read: int
    written: int
    in_kernel: int = 0  # in the event's direction: from file to file, without passing through the process
    simultaneous: int | None = None  # read and written within the same ticks; None: counted file by file


def _flow_of(event: EventContext) -> _Flow | None:
    """Return the bytes in both directions; 0 if every file was counted and none went the other way.

    None: its files were read, too, as by a check. No counter separates that from the rest.
    """
    start_ns, end_ns, own, known = event.start_ns, event.end_ns, event.own_files, event.known.transfers
    if level_of(event.parts) is Level.TRACE:
        return _flow_by_file(event)
    if event.writes and (
        any(known.openings.may_have_been_read(file, start_ns, end_ns + AT_ONCE_NS) for file in own)  # by any process
        or any(transfer.file in own for transfer in event.transfers_between(start_ns, end_ns, writes=False))
    ):
        return None
    opened = [one for one in event.parts if not one.is_mapped]
    start_ns = min([start_ns - (AT_ONCE_NS if event.writes else 0), *(one.first_ns for one in opened)])
    end_ns = max([end_ns, *(one.last_ns for one in opened)])  # one call may copy all: its bytes are counted at its end
    return _flow_by_counters(event, start_ns, end_ns)


def _flow_by_file(event: EventContext) -> _Flow:
    start_ns, end_ns = event.start_ns, event.end_ns
    window = (start_ns - AT_ONCE_NS, end_ns) if event.writes else (start_ns, end_ns + AT_ONCE_NS)
    concurrent = [
        one
        for process in event.processes
        for one in event.known.transfers.traced.transfers_of(process)
        if one.first_ns <= window[1] and one.last_ns >= window[0] and one.operations is not None
    ]
    other_way = (one for one in concurrent if one.writes != event.writes and one.file not in event.own_files)
    other_bytes = sum(_bytes_within(one, window) for one in other_way)
    if not other_bytes:
        return _Flow(0, 0)  # only its own files
    same_way_bytes = in_kernel = 0
    for transfer in concurrent:
        if transfer.writes == event.writes and (sums := transfer.operations) is not None:
            transferred = _bytes_within(transfer, window)
            same_way_bytes += transferred
            in_kernel += transferred if copies_in_kernel(sums.kinds) else 0
    read, written = (other_bytes, same_way_bytes) if event.writes else (same_way_bytes, other_bytes)
    return _Flow(read, written, in_kernel)


def _bytes_within(transfer: TracedTransfer, window: tuple[int, int]) -> int:
    return sum(share_within(size, (low_ns, high_ns), window) for low_ns, high_ns, size, *_ in transfer.points)


def _flow_by_counters(event: EventContext, start_ns: int, end_ns: int) -> _Flow:
    read = written = simultaneous = 0
    for history in (event.world.histories[process] for process in event.processes):
        startup_end_ns = history.first_ns + _STARTUP_NS
        startup_read = startup_written = 0
        for interval in history.between(start_ns, end_ns):
            written_bytes = interval.new_written_bytes
            if interval.start_ns < startup_end_ns:
                startup_read += interval.read_bytes
                startup_written += written_bytes
            else:
                read += interval.read_bytes
            written += written_bytes
            simultaneous += min(interval.read_bytes, written_bytes)
        # a process that has just started may have read, besides its modules, what it wrote
        loaded = CODE_BYTES <= startup_written < startup_read <= startup_written + CODE_BYTES
        read += startup_written if loaded else startup_read
    return _Flow(read, written, 0, simultaneous)
