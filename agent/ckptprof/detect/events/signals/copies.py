"""Copies: the same processes read elsewhere what they write, at the same time."""

from __future__ import annotations

from typing import NamedTuple

from ckptprof.detect.events.event import Event
from ckptprof.detect.events.signal import Found
from ckptprof.detect.tolerances import (
    AT_ONCE_NS,
    CALLS_NS,
    CODE_BYTES,
    HEADER_BYTES,
    LIKE,
    LITTLE_SHARE,
    NEARLY_ALL,
    is_like,
)
from ckptprof.detect.transfers.model.group import level_of
from ckptprof.detect.transfers.model.operations import copies_in_kernel
from ckptprof.detect.transfers.model.traced import TracedTransfer
from ckptprof.detect.transfers.model.transfer import Transfer, evenly
from ckptprof.frameworks.formats import ARCHIVES
from ckptprof.frameworks.names import read_name
from ckptprof.model import Level

_YOUNG_NS = 5_000_000_000


def copies(event: Event) -> Found | None:
    """Match as many bytes in the other direction by the same processes: file by file, in the kernel, or in sum."""
    if not event.mostly(lambda part: part.staged is None):
        return None  # from a staging file of the same job: one save
    found = counterparts(event)
    if found:
        other = found[0].file_name[:40]
        text = f"{'copied from' if event.writes else 'copied to'} a file of the same size, {other!r}"
        return Found(text, "copies-exactly")
    return _unpacked(event) or _in_both_ways(event)


def counterparts(event: Event) -> list[Transfer]:
    """Return the concurrent files of the same sizes in the other direction, if they explain most of the bytes."""
    if event.counterparts is None:  # several signals ask
        event.counterparts = _counterparts(event)
    return event.counterparts


def _counterparts(event: Event) -> list[Transfer]:
    sizes: dict[int, list[Transfer]] = {}
    left = _other_way(event, CALLS_NS)
    for move in left:
        sizes.setdefault(move.used_size, []).append(move)
    explained, counted_bytes, found = 0, 0, []
    for part in event.largest if sizes else ():
        if part.bytes < HEADER_BYTES or part.staged is not None:
            continue
        counted_bytes += part.bytes
        for move in sizes.get(part.stored_size, ()):
            # one read is one copy; layers have the same size
            if left[move] * 2 > part.bytes and not (event.writes and _is_of_another_step(part, move)):
                left[move] -= part.bytes
                explained += part.bytes
                found.append(move)
                break
    return found if explained * 2 > counted_bytes else []


def _is_of_another_step(part: Transfer, other: Transfer) -> bool:
    """Return whether it is the state of another step, which has the same size."""
    steps = part.name.step, read_name(other.path).step
    return None not in steps and steps[0] != steps[1]


def _unpacked(event: Event) -> Found | None:
    """Match a concurrent read of an archive: its content may be larger than itself."""
    for move, moved in _other_way(event, AT_ONCE_NS).items() if event.writes else ():
        if move.path.endswith(ARCHIVES) and moved > LITTLE_SHARE * event.bytes:
            text = f"unpacked from {move.file_name[:40]!r}, which its process read at the same time"
            return Found(text, "copies-exactly")
    return None


def _in_both_ways(event: Event) -> Found | None:
    """Match the sums: packing, splitting, or many files at once; a trainer may read data while it saves."""
    flow = _flow_of(event)
    if flow is None or not flow.written or not is_like(flow.read, flow.written):
        return None
    if flow.in_kernel * 2 > (flow.written if event.writes else flow.read):
        return Found("copied by the kernel from file to file, as much read as written", "copies-exactly")
    if flow.hand_in_hand is None or not event.trains:
        return Found("its process read as much as it wrote, at the same time", "copies-in-sum")
    if flow.hand_in_hand < (1 - LIKE) * flow.written:
        return None
    return Found("its process read as much as it wrote, in step", "copies-exactly")


def _other_way(event: Event, slack_ns: int) -> dict[Transfer, int]:
    """Return the files that the same processes transferred mostly, in the other direction, with their bytes.

    What was read after the last byte was written is no source of it.
    """
    found = {}
    for process in event.first_processes:
        for move in event.known.transfers.recent.moved(
            process, event.start_ns - slack_ns, event.end_ns + slack_ns, writes=not event.writes
        ):
            first, last = (move.span[0], event.end_ns) if event.writes else (event.start_ns, move.span[1])
            if first > last:
                continue
            moved = _moved(move, event)
            if move.file not in event.own_files and moved * 2 > move.used_size:
                found[move] = moved
    return found


def _moved(move: Transfer, event: Event) -> int:
    """Return the transferred bytes of a file; where only their bounds are known, counters may cover all of it."""
    least, best, most = move.moved
    size, history = move.used_size, event.world.histories[move.process]
    if best * 2 > size or least == most:
        return best
    start_ns, end_ns = move.data_span
    frame = min(start_ns, event.start_ns), max(end_ns, event.end_ns)
    moved = history.returned_bytes(*frame) if event.writes else history.wrote_bytes(*frame)
    return size if moved >= NEARLY_ALL * size else best


class _Flow(NamedTuple):
    """What the processes of an event read and wrote during it, except its own files, in bytes."""

    read: int
    written: int
    in_kernel: int = 0  # in the event's direction: from file to file, without passing through the process
    hand_in_hand: int | None = None  # read and written within the same ticks; None: counted file by file


def _flow_of(event: Event) -> _Flow | None:
    """Return the bytes in both directions; 0 if every file was counted and none went the other way.

    None: its files were read, too, as by a check. No counter separates that from the rest.
    """
    start_ns, end_ns, own, known = event.start_ns, event.end_ns, event.own_files, event.known.transfers
    if level_of(event.parts) is Level.TRACE:
        return _flow_by_file(event)
    if event.writes:
        if any(known.openings.was_read(file, start_ns, end_ns + AT_ONCE_NS) for file in own):
            return None  # by any process
        readings = (known.recent.moved(process, start_ns, end_ns, writes=False) for process in event.first_processes)
        if any(move.file in own for moves in readings for move in moves):
            return None
    opened = [one for one in event.parts if not one.is_mapped]
    start_ns = min([start_ns - (AT_ONCE_NS if event.writes else 0), *(one.first_ns for one in opened)])
    end_ns = max([end_ns, *(one.last_ns for one in opened)])  # one call may copy all: its bytes are counted at its end
    return _flow_by_counters(event, start_ns, end_ns)


def _flow_by_file(event: Event) -> _Flow:
    start_ns, end_ns = event.start_ns, event.end_ns
    frame = (start_ns - AT_ONCE_NS, end_ns) if event.writes else (start_ns, end_ns + AT_ONCE_NS)
    meanwhile = [
        one
        for process in event.processes
        for one in event.known.transfers.traced.moved_by(process)
        if one.first_ns <= frame[1] and one.last_ns >= frame[0] and one.operations is not None
    ]
    other_way = (one for one in meanwhile if one.writes != event.writes and one.file not in event.own_files)
    others = sum(_within(one, frame) for one in other_way)
    if not others:
        return _Flow(0, 0)  # only its own files
    same = in_kernel = 0
    for transfer in meanwhile:
        if transfer.writes == event.writes and (sums := transfer.operations) is not None:
            moved = _within(transfer, frame)
            same += moved
            in_kernel += moved if copies_in_kernel(sums.kinds) else 0
    return _Flow(others, same, in_kernel) if event.writes else _Flow(same, others, in_kernel)


def _within(transfer: TracedTransfer, frame: tuple[int, int]) -> int:
    moved = 0
    for low_ns, high_ns, size, *_ in transfer.points:
        if frame[0] <= low_ns and high_ns <= frame[1]:
            moved += size
        elif low_ns <= frame[1] and high_ns >= frame[0]:
            moved += evenly(size, (low_ns, high_ns), frame)
    return moved


def _flow_by_counters(event: Event, start_ns: int, end_ns: int) -> _Flow:
    read = written = together = 0
    for history in (event.world.histories[process] for process in event.processes):
        young_ns = history.first_ns + _YOUNG_NS
        young_read = young_written = 0
        for interval in history.between(start_ns, end_ns):
            wrote = interval.wrote_bytes
            if interval.start_ns < young_ns:
                young_read += interval.read_bytes
                young_written += wrote
            else:
                read += interval.read_bytes
            written += wrote
            together += min(interval.read_bytes, wrote)
        # a process that has just started may have read, besides its modules, what it wrote
        loaded = CODE_BYTES <= young_written < young_read <= young_written + CODE_BYTES
        read += young_written if loaded else young_read
    return _Flow(read, written, 0, together)
