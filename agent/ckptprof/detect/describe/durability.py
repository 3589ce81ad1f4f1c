"""When files reached stable storage: by their own sync, or by the looks at what of them was not yet written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.transfers.part import Part
from ckptprof.detect.world.clock import Clock
from ckptprof.detect.world.keys import FileKey
from ckptprof_collectors.samples import FileFact

MAX_FILES = 8192
_COVERED = 0.99  # of the bytes: of a checkpoint of thousands of files the smallest are not followed
_LATE_NS = 100_000_000  # file systems stamp with the clock of the last timer tick


@dataclass(slots=True)
class Looks:
    """What was seen of one file since it was last modified. Times are CLOCK_MONOTONIC, of the frames that told."""

    modified_ns: int  # wall clock
    at_ns: int = 0
    unwritten_bytes: int = 0  # when last looked at
    dirty_ns: int | None = None  # the last look at which something was unwritten
    clean_ns: int | None = None  # the first look after that at which nothing was


class Writeback:
    """The looks at the files that were seen last."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._looks: dict[FileKey, Looks] = {}

    def learn(self, at_ns: int, fact: FileFact) -> bool:
        """Take one fact; return whether it tells how much of a file is unwritten."""
        if fact.unwritten_bytes is None or fact.missing or fact.is_directory:
            return False
        file = (fact.device, fact.inode)
        looks = self._looks.pop(file, None)
        if looks is None or looks.modified_ns != fact.modified_ns:
            looks = Looks(fact.modified_ns)
        while len(self._looks) >= MAX_FILES:
            del self._looks[next(iter(self._looks))]
        self._looks[file] = looks
        looks.at_ns, looks.unwritten_bytes = at_ns, fact.unwritten_bytes
        if fact.unwritten_bytes:
            looks.dirty_ns, looks.clean_ns = at_ns, None
        elif looks.clean_ns is None:
            looks.clean_ns = at_ns
        return True

    def of(self, file: FileKey) -> Looks | None:
        """Return what was seen of a file."""
        return self._looks.get(file)

    def forget_before(self, at_ns: int) -> None:
        """Drop what was last looked at before `at_ns`."""
        for file, looks in list(self._looks.items()):
            if looks.at_ns >= at_ns:
                break
            del self._looks[file]


@dataclass(frozen=True, slots=True)
class FileEnd:
    """What decides when a written file is durable. Times are CLOCK_MONOTONIC."""

    file: FileKey
    bytes: int
    last_ns: int  # its last write
    synced_ns: int | None  # the end of a sync after that


@dataclass(frozen=True)
class Durability:
    """When all files were on stable storage. Times are CLOCK_MONOTONIC."""

    at_ns: int | None = None
    exact: bool = True  # told by syncs; else it was so at the latest then
    not_before_ns: int | None = None  # the last look at which something was unwritten
    unwritten_bytes: int = 0  # when last looked at


def ends_of(candidate: Candidate, clock: Clock) -> tuple[FileEnd, ...]:
    """Return the ends of a candidate's files, the largest first."""
    if not candidate.writes:
        return ()
    return tuple(_end(part, clock) for part in sorted(candidate.parts, key=lambda part: -part.bytes))


def _end(part: Part, clock: Clock) -> FileEnd:
    stream, trace = part.stream, part.stream.trace
    if trace is not None:
        return FileEnd(stream.file, part.bytes, trace.active_ns, trace.durable_ns)
    modified_ns = clock.mono(stream.fact.modified_ns) if stream.fact is not None else part.end_ns
    return FileEnd(stream.file, part.bytes, min(part.end_ns, max(part.start_ns, modified_ns)), None)


def durability(ends: Sequence[FileEnd], book: Writeback) -> Durability:
    """Return what is known by now: `at_ns` only if it is known of nearly all bytes and of no file the opposite."""
    whole = sum(end.bytes for end in ends)
    known = unwritten = 0
    times: list[int] = []
    dirty: list[int] = []
    exact = True
    for end in ends:
        if end.synced_ns is not None:
            known += end.bytes
            times.append(end.synced_ns)
            continue
        exact = False
        looks = book.of(end.file)
        if looks is None or looks.at_ns < end.last_ns - _LATE_NS:
            continue
        if looks.dirty_ns is not None:
            dirty.append(looks.dirty_ns)
        if looks.clean_ns is None:
            unwritten += looks.unwritten_bytes
        elif looks.clean_ns >= end.last_ns:
            known += end.bytes
            times.append(looks.clean_ns)
    if not times or unwritten or known < _COVERED * whole:
        return Durability(unwritten_bytes=unwritten, not_before_ns=max(dirty, default=None))
    return Durability(max(times), exact, max(dirty, default=None))
