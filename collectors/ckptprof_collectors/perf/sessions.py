"""What single calls add up to: the sessions of a file, and the file behind a descriptor."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass, field

from ckptprof_collectors.files.statx import statx
from ckptprof_collectors.processes.openfiles import parse_fdinfo
from ckptprof_collectors.samples import FileActivity, OperationKind, text

_LARGE_BYTES = 1 << 20
_FARTHEST = 1 << 63  # where no offset can be
_KERNELS_OWN = (b"/proc/", b"/sys/")


@dataclass
class Session:
    """What one thread did to one opening of a file in one direction; offsets count from where the opening's do."""

    tid: int
    writes: bool
    first_ns: int
    first: int
    end: int
    low: int
    high: int
    comm: str = ""
    operations: int = 0
    bytes: int = 0
    consecutive_operations: int = 0
    consecutive_bytes: int = 0
    sequential_operations: int = 0
    sequential_bytes: int = 0
    large_bytes: int = 0
    run_bytes: int = 0
    call_ns: int = 0
    last_ns: int = 0
    kinds: int = 0
    told: int = 0  # operations, in the last sample
    failed_operations: int = 0
    failed_ns: int | None = None
    error: int | None = None
    sizes: dict[int, tuple[int, int]] = field(default_factory=dict)  # bit length of the size: operations, bytes

    def add(self, offset: int, size: int, begun_ns: int, ended_ns: int, kind: int) -> None:
        """Take in one operation, as the eBPF programs do (bpf/trace.h)."""
        self.operations += 1
        self.bytes += size
        if offset == self.end:
            self.consecutive_operations += 1
            self.consecutive_bytes += size
            self.sequential_operations += 1
            self.sequential_bytes += size
            self.run_bytes += size
        else:
            if offset > self.end:
                self.sequential_operations += 1
                self.sequential_bytes += size
            self.run_bytes = size
        if self.run_bytes >= _LARGE_BYTES:
            self.large_bytes += self.run_bytes if self.run_bytes - size < _LARGE_BYTES else size
        self.call_ns += ended_ns - begun_ns
        self.last_ns = ended_ns
        self.end = offset + size
        self.low = min(self.low, offset)
        self.high = max(self.high, self.end)
        self.kinds |= kind
        count, total = self.sizes.get(bits := size.bit_length(), (0, 0))
        self.sizes[bits] = (count + 1, total + size)

    def fail(self, error: int, at_ns: int) -> None:
        """Take in an operation that failed."""
        self.failed_operations += 1
        self.failed_ns, self.error = at_ns, error
        self.told = -1  # it has news, though it moved nothing

    def shift(self, by: int) -> None:
        """Count offsets from the beginning of the file, which was `by` before."""
        self.first += by
        self.end += by
        self.low += by
        self.high += by


@dataclass(frozen=True)
class Seen:
    """What a look at a descriptor showed."""

    device: int
    inode: int
    path: str
    size: int
    direct: bool
    appends: bool
    position: int
    looked_ns: int  # when the look was over


@dataclass
class Opening:
    """An open file, as far as its descriptors of one process go."""

    pid: int
    fd: int  # one of its descriptors
    in_sight: bool  # it was opened while we looked
    position: int = 0  # from the beginning of the file if `settled`, else from where it was at first sight
    settled: bool = False
    descriptors: int = 1
    skipped: bool = False  # no regular file
    strikes: int = 0  # times that its descriptor was found to be another file's
    doubtful: bool = False  # its descriptor may have been another file's when it was looked at
    seen: Seen | None = None
    confirmed: bool = False  # nothing came between the opening and the look at it
    moved_since: int = 0  # by how much the position moved after the look
    size: int = 0
    closed_ns: int | None = None
    sessions: dict[tuple[int, bool], Session] = field(default_factory=dict)

    def add(self, who: tuple[int, bool], offset: int | None, size: int, span: tuple[int, int], kind: int) -> None:
        """Take in an operation of a thread in a direction; no offset: it was made at the position."""
        begun_ns, ended_ns = span
        if offset is None:
            offset = self.position
            self.position += size
            if self.seen is not None and ended_ns > self.seen.looked_ns:
                self.moved_since += size
        session = self.sessions.get(who)
        if session is None:
            session = Session(who[0], who[1], begun_ns, offset, offset, offset, offset)
            self.sessions[who] = session
        session.add(offset, size, begun_ns, ended_ns, kind)

    def carry_on(self, who: tuple[int, bool], size: int, span: tuple[int, int], kind: int) -> None:
        """Take in an operation whose offset cannot be seen: taken to begin where the one before ended."""
        session = self.sessions.get(who)
        self.add(who, session.end if session is not None else 0, size, span, kind)

    def seek(self, position: int, *, relative_by: int | None) -> None:
        """Go to a position; if it was given relative to the one before, that one is known now."""
        if not self.settled:
            if relative_by is not None:
                self._shift(position - relative_by - self.position)
            self.settled = True
        self.position = position

    def settle(self) -> None:
        """Trust what was seen of it, and count from the beginning of the file."""
        self.confirmed = True
        if self.seen is not None:
            self.size = self.seen.size
            if not self.settled:
                before = self.position - self.moved_since
                at = self.seen.size if self.seen.appends and not before else self.seen.position
                self.settled = True
                at = max(at, before)  # calls that went on during the look may be on either side of it
                self._shift(at - before)
                self.position = at + self.moved_since

    def _shift(self, by: int) -> None:
        for session in self.sessions.values():
            session.shift(by)

    @property
    def operations(self) -> int:
        """How many there were."""
        return sum(session.operations for session in self.sessions.values())

    @property
    def bytes(self) -> int:
        """How many were moved."""
        return sum(session.bytes for session in self.sessions.values())


def look(folder: str, fd: int) -> Seen | None:
    """Return what is behind a descriptor of a process; None if it is no regular file on a disk; raises OSError."""
    link = f"{folder}/fd/{fd}".encode()
    status = statx(link)
    if not stat.S_ISREG(status.mode):
        return None
    path = os.readlink(link)
    if path.startswith(_KERNELS_OWN):
        return None
    with open(f"{folder}/fdinfo/{fd}", "rb", buffering=0) as stream:
        position, flags = parse_fdinfo(stream.read(4096))
    return Seen(
        device=status.device,
        inode=status.inode,
        path=text(path),
        size=status.size,
        direct=bool((flags or 0) & os.O_DIRECT),
        appends=bool((flags or 0) & os.O_APPEND),
        position=position or 0,
        looked_ns=time.monotonic_ns(),
    )


def size_of(folder: str, fd: int, seen: Seen) -> int | None:
    """Return how long the file is now; None if the descriptor is another file's; raises OSError."""
    status = statx(f"{folder}/fd/{fd}".encode())
    return status.size if (status.device, status.inode) == (seen.device, seen.inode) else None


def sample_of(opening: Opening, session: Session, start_ticks: int) -> FileActivity | None:
    """Return the sample of a session; None while its file is not known, or if no file is as long as it would be.

    A caller may name any offset. The kernel refuses those, but where events were lost a call may be taken for another.
    """
    seen = opening.seen
    if seen is None or session.high >= _FARTHEST or session.low < -_FARTHEST:
        return None
    return FileActivity(
        session=f"p{session.tid:x}.{seen.device:x}.{seen.inode:x}.{session.writes:d}.{session.first_ns:x}",
        pid=opening.pid,
        start_ticks=start_ticks,
        tid=session.tid,
        comm=session.comm,
        device=seen.device,
        inode=seen.inode,
        generation=0,
        writes=session.writes,
        path=seen.path,
        size=max(opening.size, session.high) if session.writes else opening.size,
        operations=session.operations,
        bytes=session.bytes,
        consecutive_operations=session.consecutive_operations,
        consecutive_bytes=session.consecutive_bytes,
        sequential_operations=session.sequential_operations,
        sequential_bytes=session.sequential_bytes,
        large_bytes=session.large_bytes,
        direct_bytes=session.bytes if seen.direct else 0,
        call_ns=session.call_ns,
        timed_operations=session.operations,
        first_ns=session.first_ns,
        last_ns=session.last_ns,
        first_offset=session.first,
        end_offset=session.end,
        low_offset=session.low,
        high_offset=session.high,
        kinds=session.kinds | (OperationKind.APPEND if seen.appends else 0),
        sizes=tuple((1 << bits >> 1, count, total) for bits, (count, total) in sorted(session.sizes.items())),
        closed_ns=opening.closed_ns,
        failed_operations=session.failed_operations,
        failed_ns=session.failed_ns,
        error=session.error,
    )
