"""Whether what was written is what was read elsewhere at that time; and one event for the two sides of a copy."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import nlargest

from ckptprof.detect.events.candidates import Candidate, is_traced
from ckptprof.detect.events.knowledge import Knowledge
from ckptprof.detect.events.signals.weights import WEIGHTS
from ckptprof.detect.transfers.part import Part
from ckptprof.detect.transfers.recent import RecentTransfer
from ckptprof.detect.transfers.saved_files import SavedFiles
from ckptprof.detect.transfers.streams import Stream
from ckptprof.detect.transfers.traced import copies_in_kernel
from ckptprof.detect.world.keys import FileKey, ProcessKey
from ckptprof.detect.world.process_counters import writing
from ckptprof.frameworks.formats import ARCHIVES
from ckptprof.model import Checkpoint, Evidence

AHEAD_NS = 500_000_000  # what is written was read before
SELF_NS = 2_000_000_000  # what was written so lately by the same process is staging, or a further name of one save
WAIT_NS = 14_000_000_000  # the read side of a copy waits for its written side: that may wait for a rename
_CLOSE_NS = 150_000_000
_LIKE = (0.8, 1.25)
_SAME = (0.95, 1.05)
_SMALL_BYTES = 64 << 10  # sizes of small files are equal by chance
_LOADED_BYTES = 32 << 20  # at most, of Python's modules (PyTorch: 24 MB); libraries are mapped
_YOUNG_NS = 5_000_000_000
_ARCHIVE_SHARE = 0.1  # of what is written, read from one
_MAX_PARTS = 512
_MAX_PROCESSES = 64
_MAX_RECENT = 256


def copies(candidate: Candidate, known: Knowledge) -> Evidence | None:
    """Weigh that as much moved the other way by the same processes: file by file, in the kernel, or in sum."""
    if sum(part.bytes for part in candidate.parts if part.staged is not None) * 2 > _bytes(candidate):
        return None  # written elsewhere first, by the same hand: one save
    found = counterparts(candidate, known)
    if found:
        other = found[0].path.rpartition("/")[2][:40]
        text = f"{'copied from' if candidate.writes else 'copied to'} a file of the same size, {other!r}"
        return Evidence(name="copies", weight=WEIGHTS["copies-exactly"], text=text)
    return _unpacked(candidate, known) or (
        _traced(candidate, known) if is_traced(candidate) else _polled(candidate, known)
    )


def _unpacked(candidate: Candidate, known: Knowledge) -> Evidence | None:
    """Weigh that an archive was read meanwhile: what comes out of it may be more than what went in."""
    if not candidate.writes:
        return None
    least = _ARCHIVE_SHARE * _bytes(candidate)
    for move, moved in _other_way(candidate, known, _own_files(candidate), AHEAD_NS).items():
        if move.path.endswith(ARCHIVES) and moved > least:
            text = f"unpacked from {move.path.rpartition('/')[2][:40]!r}, which its process read at the same time"
            return Evidence(name="copies", weight=WEIGHTS["copies-exactly"], text=text)
    return None


def counterparts(candidate: Candidate, known: Knowledge) -> list[RecentTransfer]:
    """Return the files of the same sizes that were moved the other way meanwhile, if they explain most of the bytes."""
    own = _own_files(candidate)
    slack_ns = _CLOSE_NS
    sizes: dict[int, list[RecentTransfer]] = {}
    left = _other_way(candidate, known, own, slack_ns)
    for move in left:
        sizes.setdefault(move.size, []).append(move)
    if not sizes:
        return []
    explained, counted, found = 0, 0, []
    for part in nlargest(_MAX_PARTS, candidate.parts, key=lambda part: part.bytes):
        if part.bytes < _SMALL_BYTES or part.staged is not None:
            continue
        counted += part.bytes
        for move in sizes.get(_size(part), ()):
            near = move.start_ns <= part.end_ns + slack_ns and move.end_ns >= part.start_ns - slack_ns
            if near and left[move] * 2 > part.bytes:  # what was read once was copied once; layers are of one size
                left[move] -= part.bytes
                explained += part.bytes
                found.append(move)
                break
    return found if explained * 2 > counted else []


def _other_way(candidate: Candidate, known: Knowledge, own: set[FileKey], slack_ns: int) -> dict[RecentTransfer, int]:
    """Return what the same processes moved the other way meanwhile, of each most of the file, and how many bytes."""
    low_ns, high_ns = candidate.start_ns - slack_ns, candidate.end_ns + slack_ns
    lately = _written_lately(candidate, known) if candidate.writes else set()
    found = {}
    for process in candidate.processes[:_MAX_PROCESSES]:
        for move in known.transfers.recent.of(process, low_ns, high_ns, writes=not candidate.writes):
            moved = _moved(move, process, known, candidate)
            if move.file not in own and move.file not in lately and moved * 2 > move.size:
                found[move] = moved
    return found


def _moved(move: RecentTransfer, process: ProcessKey, known: Knowledge, candidate: Candidate) -> int:
    """Return how much of a file was moved; polled, the last look may have come early, and the counters tell."""
    if move.bytes is None:
        return move.size
    history = known.world.histories.get(process)
    if move.bytes * 2 > move.size or is_traced(candidate) or history is None:
        return move.bytes
    intervals = history.between(min(move.start_ns, candidate.start_ns), max(move.end_ns, candidate.end_ns))
    counted = sum(one.returned_bytes if candidate.writes else writing(one) for one in intervals)
    return move.size if counted >= _SAME[0] * move.size else move.bytes


def _written_lately(candidate: Candidate, known: Knowledge) -> set[FileKey]:
    """Return the files that the candidate's processes themselves wrote just before it, or in it."""
    since_ns = candidate.start_ns - SELF_NS
    return {
        move.file
        for process in candidate.processes[:_MAX_PROCESSES]
        for move in known.transfers.recent.of(process, since_ns, candidate.end_ns, writes=True)
    }


def _traced(candidate: Candidate, known: Knowledge) -> Evidence | None:
    """Weigh the sums, from the trace: packing, splitting, or many at once."""
    own_files = _own_files(candidate)
    if candidate.writes:
        own_files |= _written_lately(candidate, known)
    start_ns, end_ns = candidate.start_ns, candidate.end_ns
    if candidate.writes:
        start_ns -= AHEAD_NS
    else:
        end_ns += AHEAD_NS
    own = others = in_kernel = 0
    for process in candidate.processes:
        for stream in known.transfers.traced.moved_by(process):
            moved = _within(stream, start_ns, end_ns)
            if not moved:
                continue
            if stream.writes == candidate.writes:
                own += moved
                in_kernel += moved if stream.trace is not None and copies_in_kernel(stream.trace.totals.kinds) else 0
            elif stream.file not in own_files:
                others += moved
    if not own or not _LIKE[0] <= others / own <= _LIKE[1]:
        return None
    if in_kernel * 2 > own:
        text = "copied by the kernel from file to file, as much read as written"
        return Evidence(name="copies", weight=WEIGHTS["copies-exactly"], text=text)
    return _in_sum()


def _polled(candidate: Candidate, known: Knowledge) -> Evidence | None:
    """Weigh the sums, from the counters; those of a trainer only if both went hand in hand: it may read data."""
    if candidate.writes and _reads_own(candidate, known):
        return None
    read = meanwhile = written = together = 0
    opened = [part.stream for part in candidate.parts if not part.stream.is_mapping]
    start_ns = min([candidate.start_ns - (AHEAD_NS if candidate.writes else 0), *(s.first_ns for s in opened)])
    end_ns = max(
        [candidate.end_ns, *(stream.last_ns for stream in opened)]
    )  # one call may copy all: it reads at its end
    for process in candidate.processes:
        history = known.world.histories.get(process)
        young_ns = history.first_ns + _YOUNG_NS if history else 0
        young_read = young_written = 0
        for interval in history.between(start_ns, end_ns) if history else ():
            wrote = writing(interval)
            if interval.start_ns < young_ns:
                young_read += interval.read_bytes
                young_written += wrote
            else:
                read += interval.read_bytes
            meanwhile += interval.read_bytes if wrote else 0  # before it wrote it may have loaded its modules
            written += wrote
            together += min(interval.read_bytes, wrote)
        read += _after_loading(young_read, young_written)
    if not written or not _LIKE[0] <= read / written <= _LIKE[1]:
        return None
    if not known.world.trains(candidate.processes):
        return _in_sum()
    same = any(_SAME[0] <= some / written <= _SAME[1] for some in (read, meanwhile))
    if not same or together < _LIKE[0] * written:
        return None
    text = "its process read as much as it wrote, hand in hand"
    return Evidence(name="copies", weight=WEIGHTS["copies-exactly"], text=text)


def _after_loading(read: int, wrote: int) -> int:
    """Return what a process that has just begun read besides its modules: it may be what it wrote."""
    return wrote if _LOADED_BYTES <= wrote < read <= wrote + _LOADED_BYTES else read


def _reads_own(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether its processes read what they had just written: staging, verifying, merging."""
    lately = _written_lately(candidate, known)
    return any(
        move.file in lately
        for process in candidate.processes[:_MAX_PROCESSES]
        for move in known.transfers.recent.of(process, candidate.start_ns, candidate.end_ns, writes=False)
    )


def _in_sum() -> Evidence:
    text = "its process read as much as it wrote, at the same time"
    return Evidence(name="copies", weight=WEIGHTS["copies"], text=text)


def _own_files(candidate: Candidate) -> set[FileKey]:
    """Return its files, and those that it was written to first."""
    staged = {part.staged.file for part in candidate.parts if part.staged is not None}
    return staged | {part.stream.file for part in candidate.parts}


def _bytes(candidate: Candidate) -> int:
    return sum(part.bytes for part in candidate.parts)


def _size(part: Part) -> int:
    return part.stream.fact.size if part.stream.fact is not None else part.stream.size


def _within(stream: Stream, start_ns: int, end_ns: int) -> int:
    """Return how many of a stream's bytes were moved in the given time, at an even rate within each look."""
    if stream.trace is None or stream.first_ns > end_ns or stream.last_ns < start_ns:
        return 0
    moved = 0
    for low, high, size in stream.trace.points:
        inside = min(high, end_ns) - max(low, start_ns)
        if inside > 0:
            moved += size if inside >= high - low else size * inside // (high - low)
    return moved


@dataclass(frozen=True, slots=True)
class _Side:
    checkpoint: Checkpoint
    start_ns: int  # CLOCK_MONOTONIC
    end_ns: int
    names: frozenset[str]  # of its files, without folders
    others: frozenset[str]  # paths of the other side, as far as it was seen


class Copies:
    """Tells the written side of a copy at once, and the read side only if no written side turned up."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._written: deque[_Side] = deque(maxlen=_MAX_RECENT)
        self._read: deque[_Side] = deque(maxlen=_MAX_RECENT)

    def add(self, copy: Checkpoint, candidate: Candidate, others: list[RecentTransfer]) -> list[Checkpoint]:
        """Take one side; return it if it may be told."""
        names = frozenset(part.stream.path.rpartition("/")[2] for part in candidate.parts[:_MAX_PARTS])
        side = _Side(copy, candidate.start_ns, candidate.end_ns, names, frozenset(move.path for move in others))
        if candidate.writes:
            self._written.append(side)
            return [copy]
        self._read.append(side)
        return []

    def take(self, now_ns: int, saved: SavedFiles) -> list[Checkpoint]:
        """Return the read sides that stayed alone: sent, packed, or staged under names that nobody knows."""
        told, waiting = [], []
        for side in self._read:
            if now_ns - side.end_ns < WAIT_NS:
                waiting.append(side)
            elif not self._is_told(side) and not any(map(saved.contains, side.others)):
                told.append(side.checkpoint)
        self._read = deque(waiting, maxlen=_MAX_RECENT)
        return told

    def _is_told(self, read: _Side) -> bool:
        """Return whether the written side of the same copy was told."""
        return any(_is_one(read, written) for written in self._written)


def _is_one(read: _Side, written: _Side) -> bool:
    """Return whether two sides are of one copy: at the same time, and as many bytes or the same names."""
    apart_ns = max(read.start_ns, written.start_ns) - min(read.end_ns, written.end_ns)
    if apart_ns > SELF_NS:
        return False
    alike = _SAME[0] <= read.checkpoint.bytes / max(1, written.checkpoint.bytes) <= _SAME[1]
    return alike or bool(read.names & written.names)
