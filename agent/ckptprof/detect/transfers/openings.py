"""What is known of the moments at which files in watched folders were opened and closed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ckptprof.detect.transfers.moved_bytes import part_bytes
from ckptprof.detect.transfers.polled import PolledTransfer
from ckptprof.detect.transfers.saved_files import SavedFiles
from ckptprof.detect.transfers.transfer import Transfer
from ckptprof.detect.world.keys import FileKey, ProcessKey
from ckptprof.detect.world.process_counters import ProcessHistory, reading
from ckptprof.detect.world.world import World
from ckptprof_collectors.samples import FileEvent

MIN_BYTES = 1 << 20  # a smaller file is opened and read by too many to say who did
_WHOLE = 0.9
_FEW = 16  # openings of one file
_SLACK_NS = 120_000_000  # a tick, and some lateness
_LATE_NS = 60_000_000  # events are read at the beginning of a tick, counters a little later in it
_SETTLE_NS = 1_500_000_000
MAX_OPENINGS = 4096


@dataclass(slots=True)
class Opening:
    """A file from one opening to the closing that followed. Times are CLOCK_MONOTONIC."""

    file: FileKey
    path: str
    size: int
    opened_ns: int
    closed_ns: int | None = None
    written: bool = False
    is_settled: bool = False  # it was looked for who read it


class Openings:
    """Keeps the recent openings, and turns those that nobody else explains into streams."""

    def __init__(self, world: World, saved: SavedFiles) -> None:
        """Start with nothing."""
        self._world = world
        self._saved = saved
        self._openings: deque[Opening] = deque()
        self._of: dict[FileKey, deque[Opening]] = {}
        self._written: deque[tuple[FileKey, int, int]] = deque(maxlen=MAX_OPENINGS)  # with when, and how large by then

    def note(self, event: FileEvent) -> None:
        """Take one event."""
        key = (event.device, event.inode)
        if event.kind == "opened":
            if len(self._openings) >= MAX_OPENINGS:
                self._drop_first()
            opening = Opening(key, event.path, event.size, event.at_ns)
            self._openings.append(opening)
            self._of.setdefault(key, deque()).append(opening)
            return
        if event.kind == "closed-written":
            self._written.append((key, event.at_ns, event.size))
        for opening in reversed(self._of.get(key, ())):
            if opening.closed_ns is None and event.kind.startswith("closed"):
                opening.closed_ns = event.at_ns
                opening.written = event.kind == "closed-written"
                return

    def opened_between(self, file: FileKey, low_ns: int, high_ns: int) -> int | None:
        """Return when a file was opened in the given time, the first time if it was more than once."""
        for opening in self._of.get(file, ()):
            if low_ns <= opening.opened_ns <= high_ns:
                return opening.opened_ns
        return None

    def closed_between(self, file: FileKey, low_ns: int, high_ns: int) -> int | None:
        """Return when a file that had been written was closed in the given time, the first time if more than once."""
        for key, closed_ns, _ in self._written:
            if key == file and low_ns <= closed_ns <= high_ns:
                return closed_ns
        return None

    def size_when_closed(self, stream: Transfer) -> int:
        """Return how large a file was when it was closed after a stream had written it; 0: nobody heard of it."""
        low_ns, high_ns = stream.last_ns - _SLACK_NS, stream.end.most + _SLACK_NS
        sizes = (
            size for key, closed_ns, size in self._written if key == stream.file and low_ns <= closed_ns <= high_ns
        )
        return max(sizes, default=0)

    def unexplained(self, now_ns: int, explained: list[Transfer]) -> list[Transfer]:
        """Return streams for files that were read between two looks, by the process that read as much then.

        Anybody may have opened them, another recorder too, while a trainer read its data: only those are asked who may
        read that path, or were seen at another file of its folder.
        """
        found: list[Transfer] = []
        histories = self._world.histories
        for opening in self._openings:
            if opening.is_settled or opening.written or opening.size < MIN_BYTES:
                continue
            if now_ns - opening.opened_ns < _SETTLE_NS:
                continue
            opening.is_settled = True
            known = [*explained, *found]
            if self._is_explained(opening, known):
                continue
            readers = _at_folder(opening, known)
            if self._saved.contains(opening.path):
                readers.update(process for process in histories if self._world.may_restore(process))
            stream = self._reader(opening, {one: histories[one] for one in readers if one in histories}, known)
            if stream is not None:
                found.append(stream)
        return found

    def _is_explained(self, opening: Opening, known: Sequence[Transfer]) -> bool:
        """Return whether as many readings of its file are known as there were openings in their time."""
        beside = [stream for stream in known if _explains(stream, opening)]
        if any(stream.writes or stream.is_mapped for stream in beside):
            return True
        of_file = self._of.get(opening.file, ())
        if not beside or len(of_file) > _FEW:  # a data set is read again and again
            return bool(beside)
        about = [other for other in of_file if not other.written and any(_explains(one, other) for one in beside)]
        return len(about) <= len(beside)

    def _reader(
        self, opening: Opening, histories: dict[ProcessKey, ProcessHistory], known: Sequence[Transfer]
    ) -> PolledTransfer | None:
        """Return the stream of who read as much as the file holds while it was open, beside what is known."""
        if opening.closed_ns is None:
            return None
        from_ns, to_ns = opening.opened_ns - _LATE_NS, opening.closed_ns + 1  # what one tick tells of has one time
        for process, history in histories.items():
            if history.was_heir(from_ns - _SLACK_NS, to_ns + _SLACK_NS):
                continue  # what its child read, and what that one's children did, came into its counters
            read = sum(reading(interval) for interval in history.between(from_ns, opening.closed_ns))
            near = (one for one in known if one.end.most >= from_ns and one.begin.least <= to_ns)
            own = (stream for stream in near if stream.process == process)
            if (
                read - sum(self._read_within(stream, history, from_ns, to_ns) for stream in own)
                >= _WHOLE * opening.size
            ):
                return _stream(process, opening, opening.closed_ns)
        return None

    def _read_within(self, stream: Transfer, history: ProcessHistory, start_ns: int, end_ns: int) -> int:
        """Return how many bytes a stream read by calls in the given time, if it read at an even rate."""
        if stream.writes or stream.is_mapped or not isinstance(stream, PolledTransfer):
            return 0
        before_ns = stream.begin.least
        opened_ns = self.opened_between(stream.file, before_ns, stream.first_ns + _LATE_NS)
        first_ns = before_ns if opened_ns is None else min(opened_ns, stream.first_ns)
        if stream.looks and stream.looks[-1].position == 0:  # nothing of it was read by then
            first_ns = stream.last_ns
        last_ns = max(stream.end.most, first_ns + 1)
        moved = part_bytes(stream, history, (first_ns, last_ns)) if stream.looks else stream.size
        inside_ns = min(last_ns, end_ns) - max(first_ns, start_ns)
        return moved * max(0, inside_ns) // (last_ns - first_ns)

    def forget_before(self, at_ns: int) -> None:
        """Drop what was opened before `at_ns`."""
        while self._openings and self._openings[0].opened_ns < at_ns:
            self._drop_first()
        while self._written and self._written[0][1] < at_ns:
            self._written.popleft()

    def _drop_first(self) -> None:
        file = self._openings.popleft().file
        own = self._of[file]
        own.popleft()
        if not own:
            del self._of[file]


def _explains(stream: Transfer, opening: Opening) -> bool:
    last_ns = stream.closed_ns if stream.closed_ns is not None else stream.last_ns
    return stream.file == opening.file and stream.before_ns - _SLACK_NS <= opening.opened_ns <= last_ns + _SLACK_NS


def _at_folder(opening: Opening, streams: Iterable[Transfer]) -> set[ProcessKey]:
    """Return the processes that were seen at a file of its folder."""
    folder = opening.path.rpartition("/")[0]
    return {stream.process for stream in streams if stream.path.rpartition("/")[0] == folder}


def _stream(process: ProcessKey, opening: Opening, closed_ns: int) -> PolledTransfer:
    return PolledTransfer(
        process=process,
        file=opening.file,
        writes=False,
        path=opening.path,
        first_ns=opening.opened_ns,
        last_ns=closed_ns,
        before_ns=opening.opened_ns,
        closed_ns=closed_ns,
        seen_by="opening",
        size=opening.size,
    )
