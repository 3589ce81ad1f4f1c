"""Whether what was written is what was read elsewhere at that time, by the same processes."""

from __future__ import annotations

from ckptprof.detect.events.event import Event
from ckptprof.detect.events.signal import Found
from ckptprof.detect.tolerances import (
    AT_ONCE_NS,
    CALLS_NS,
    HEADER_BYTES,
    LIKE,
    LITTLE_SHARE,
    NEARLY_ALL,
    is_like,
)
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.frameworks.formats import ARCHIVES
from ckptprof.frameworks.names import read_name


def copies(event: Event) -> Found | None:
    """Weigh that as much moved the other way by the same processes: file by file, in the kernel, or in sum."""
    if not event.mostly(lambda part: part.staged is None):
        return None  # written elsewhere first, by the same hand: one save
    found = counterparts(event)
    if found:
        other = found[0].file_name[:40]
        text = f"{'copied from' if event.writes else 'copied to'} a file of the same size, {other!r}"
        return Found(text, "copies-exactly")
    return _unpacked(event) or _in_both_ways(event)


def counterparts(event: Event) -> list[Transfer]:
    """Return the files of the same sizes that were moved the other way meanwhile, if they explain most of the bytes."""
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
            # what was read once was copied once; layers are of one size
            if left[move] * 2 > part.bytes and not (event.writes and _is_of_another_step(part, move)):
                left[move] -= part.bytes
                explained += part.bytes
                found.append(move)
                break
    return found if explained * 2 > counted_bytes else []


def _is_of_another_step(part: Transfer, other: Transfer) -> bool:
    """Return whether a file of the same size is the state of another step, which has that size, too."""
    steps = part.name.step, read_name(other.path).step
    return None not in steps and steps[0] != steps[1]


def _unpacked(event: Event) -> Found | None:
    """Weigh that an archive was read meanwhile: what comes out of it may be more than what went in."""
    for move, moved in _other_way(event, AT_ONCE_NS).items() if event.writes else ():
        if move.path.endswith(ARCHIVES) and moved > LITTLE_SHARE * event.bytes:
            text = f"unpacked from {move.file_name[:40]!r}, which its process read at the same time"
            return Found(text, "copies-exactly")
    return None


def _in_both_ways(event: Event) -> Found | None:
    """Weigh the sums: packing, splitting, or many at once; a trainer may read data while it saves."""
    flow = event.known.transfers.flow_of(event.parts, event.own_files)
    if flow is None or not flow.written or not is_like(flow.read, flow.written):
        return None
    if flow.in_kernel * 2 > (flow.written if event.writes else flow.read):
        return Found("copied by the kernel from file to file, as much read as written", "copies-exactly")
    if flow.hand_in_hand is None or not event.trains:
        return Found("its process read as much as it wrote, at the same time", "copies-in-sum")
    if flow.hand_in_hand < (1 - LIKE) * flow.written:
        return None
    return Found("its process read as much as it wrote, hand in hand", "copies-exactly")


def _other_way(event: Event, slack_ns: int) -> dict[Transfer, int]:
    """Return what the same processes moved the other way meanwhile, of each most of the file, and how many bytes.

    What was read once the last byte was written is no source of it.
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
    """Return how much of a file was moved; where that is bounded only, counters may show all of it."""
    least, best, most = move.moved
    size, history = move.used_size, event.world.histories[move.process]
    if best * 2 > size or least == most:
        return best
    start_ns, end_ns = move.data_span
    frame = min(start_ns, event.start_ns), max(end_ns, event.end_ns)
    moved = history.returned_bytes(*frame) if event.writes else history.wrote_bytes(*frame)
    return size if moved >= NEARLY_ALL * size else best
