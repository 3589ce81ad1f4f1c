"""Whether what was written is what was read elsewhere at that time; and one event for the two sides of a copy."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import nlargest

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.knowledge import Knowledge
from ckptprof.detect.events.life import OTHER_SIDE_NS, State, Trigger, after
from ckptprof.detect.events.signal import Found
from ckptprof.detect.transfers.flows import AHEAD_NS
from ckptprof.detect.transfers.ledger import counted
from ckptprof.detect.transfers.model.tolerances import CALLS_NS
from ckptprof.detect.transfers.recent import RecentTransfer
from ckptprof.detect.transfers.saved_files import SavedFiles
from ckptprof.detect.world.keys import FileKey, ProcessKey
from ckptprof.frameworks.formats import ARCHIVES
from ckptprof.model import Checkpoint

SELF_NS = 2_000_000_000  # what was written so lately by the same process is staging, or a further name of one save
_LIKE = (0.8, 1.25)
_SAME = (0.95, 1.05)
_SMALL_BYTES = 64 << 10  # sizes of small files are equal by chance
_ARCHIVE_SHARE = 0.1  # of what is written, read from one
_MAX_PARTS = 512
_MAX_PROCESSES = 64
_MAX_RECENT = 256


def copies(candidate: Candidate, known: Knowledge) -> Found | None:
    """Weigh that as much moved the other way by the same processes: file by file, in the kernel, or in sum."""
    if sum(part.bytes for part in candidate.parts if part.staged is not None) * 2 > _bytes(candidate):
        return None  # written elsewhere first, by the same hand: one save
    found = counterparts(candidate, known)
    if found:
        other = found[0].path.rpartition("/")[2][:40]
        text = f"{'copied from' if candidate.writes else 'copied to'} a file of the same size, {other!r}"
        return Found(text, "copies-exactly")
    return _unpacked(candidate, known) or _in_both_ways(candidate, known)


def _unpacked(candidate: Candidate, known: Knowledge) -> Found | None:
    """Weigh that an archive was read meanwhile: what comes out of it may be more than what went in."""
    if not candidate.writes:
        return None
    least = _ARCHIVE_SHARE * _bytes(candidate)
    for move, moved in _other_way(candidate, known, _own_files(candidate), AHEAD_NS).items():
        if move.path.endswith(ARCHIVES) and moved > least:
            text = f"unpacked from {move.path.rpartition('/')[2][:40]!r}, which its process read at the same time"
            return Found(text, "copies-exactly")
    return None


def counterparts(candidate: Candidate, known: Knowledge) -> list[RecentTransfer]:
    """Return the files of the same sizes that were moved the other way meanwhile, if they explain most of the bytes."""
    if candidate.counterparts is None:  # several signals ask
        candidate.counterparts = _counterparts(candidate, known)
    return candidate.counterparts


def _counterparts(candidate: Candidate, known: Knowledge) -> list[RecentTransfer]:
    own = _own_files(candidate)
    slack_ns = CALLS_NS
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
        for move in sizes.get(part.stored_size, ()):
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
    """Return how much of a file was moved; where that is bounded only, counters may show all of it."""
    least, best, most = move.bytes
    history = known.world.histories.get(process)
    if best * 2 > move.size or least == most or history is None:
        return best
    frame = min(move.start_ns, candidate.start_ns), max(move.end_ns, candidate.end_ns)
    moved = history.returned_bytes(*frame) if candidate.writes else counted(history, *frame, writes=True)
    return move.size if moved >= _SAME[0] * move.size else best


def _written_lately(candidate: Candidate, known: Knowledge) -> set[FileKey]:
    """Return the files that the candidate's processes themselves wrote just before it, or in it."""
    since_ns = candidate.start_ns - SELF_NS
    return {
        move.file
        for process in candidate.processes[:_MAX_PROCESSES]
        for move in known.transfers.recent.of(process, since_ns, candidate.end_ns, writes=True)
    }


def _in_both_ways(candidate: Candidate, known: Knowledge) -> Found | None:
    """Weigh the sums: packing, splitting, or many at once; a trainer may read data while it saves."""
    own = _own_files(candidate)
    if candidate.writes:
        own |= _written_lately(candidate, known)
    flow = known.transfers.flow_of(candidate.parts, own)
    if flow is None or not flow.written or not _LIKE[0] <= flow.read / flow.written <= _LIKE[1]:
        return None
    if flow.in_kernel * 2 > (flow.written if candidate.writes else flow.read):
        text = "copied by the kernel from file to file, as much read as written"
        return Found(text, "copies-exactly")
    if flow.read_while_writing is None or not known.world.trains(candidate.processes):
        return Found("its process read as much as it wrote, at the same time", "copies-in-sum")
    same = any(_SAME[0] <= some / flow.written <= _SAME[1] for some in (flow.read, flow.read_while_writing))
    if not same or flow.hand_in_hand < _LIKE[0] * flow.written:
        return None
    text = "its process read as much as it wrote, hand in hand"
    return Found(text, "copies-exactly")


def _own_files(candidate: Candidate) -> set[FileKey]:
    """Return its files, and those that it was written to first."""
    staged = {part.staged.file for part in candidate.parts if part.staged is not None}
    return staged | {part.file for part in candidate.parts}


def _bytes(candidate: Candidate) -> int:
    return sum(part.bytes for part in candidate.parts)


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
        names = frozenset(part.path.rpartition("/")[2] for part in candidate.parts[:_MAX_PARTS])
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
            if now_ns - side.end_ns < OTHER_SIDE_NS:
                waiting.append(side)
                continue
            reported = self._is_told(side) or any(map(saved.contains, side.others))
            if after(State.DEFERRED, Trigger.OTHER_SIDE_REPORTED if reported else Trigger.ALONE) is State.REPORTED:
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
