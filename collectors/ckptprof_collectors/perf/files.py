"""From single calls to sessions: follows the descriptors of every process, and looks at what is behind them."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from ckptprof_collectors.perf.calls import CREAT, DUP3, FCNTL, KINDS, OPEN, OPENAT, ROLES, Role
from ckptprof_collectors.perf.events import Event
from ckptprof_collectors.perf.sessions import Opening, Seen, Session, look, sample_of, size_of
from ckptprof_collectors.samples import FileLifeEvent, Sample, text

_FD = 0xFFFFFFFF
_CURRENT = (1 << 64) - 1  # an offset of -1: at the position (preadv2, pwritev2)
_WRITABLE, _SEEK_CUR, _KEEP_OPEN = 3, 1, 4  # O_WRONLY | O_RDWR, lseek, CLOSE_RANGE_CLOEXEC
_DUPLICATES = (fcntl.F_DUPFD, fcntl.F_DUPFD_CLOEXEC)  # what os.dup is, and with it ndarray.tofile
_MOST_BYTES = 1 << 31  # of one call: include/linux/fs.h, MAX_RW_COUNT
_RESTARTED = -512  # include/linux/errno.h: from here down the kernel makes the call again by itself
_PENDING, _OPENINGS, _LOOKS = 65536, 65536, 4096


@dataclass
class Process:
    """One process and its open files."""

    pid: int
    folder: str
    start_ticks: int | None = None
    comm: str = ""
    foreign: bool = False  # to be left out
    fds: dict[int, Opening] = field(default_factory=dict)
    lasting: set[int] = field(default_factory=set)  # descriptors that stay open when another program is executed

    def identify(self) -> None:
        """Learn its name, and when it started."""
        with suppress(OSError, IndexError, ValueError), open(f"{self.folder}/stat", "rb", buffering=0) as stream:
            head, _, rest = stream.read(1024).rpartition(b")")
            self.start_ticks = int(rest.split()[19])
            self.comm = text(head.partition(b"(")[2])


_Sync = tuple[Process, Opening, int, int, int, int | None]  # thread, begin, end and errno


@dataclass
class Losses:
    """What had to be given up."""

    operations: int = 0
    bytes: int = 0
    sessions: int = 0
    events: int = 0


class Files:
    """Takes events in order; `look`, more events, then `take`: that gives only what the events have confirmed."""

    def __init__(self, proc: str, left_out: frozenset[int]) -> None:
        """`proc` is where /proc is; `left_out` are processes."""
        self._proc = proc
        self._left_out = left_out
        self._processes: dict[int, Process] = {}
        self._pending: dict[int, Event] = {}
        self._fresh: list[Opening] = []  # not looked at
        self._looked: list[Opening] = []  # looked at, not confirmed
        self._dirty: dict[int, Opening] = {}
        self._ended: list[tuple[Process, Opening]] = []
        self._syncs: list[_Sync] = []
        self._openings = 0
        self.impatient = False  # a file is to be looked at again soon
        self._write_opens: dict[int, int] = {}  # thread -> when it began to open a file to write it
        self.write_opens = self.operations = 0
        self.lost = Losses()
        self._calls = {
            Role.SENDFILE: self._sendfile,
            Role.SPLICE: self._between,
            Role.COPY_RANGE: self._between,
            Role.SEEK: self._seek,
            Role.SYNC: self._sync,
            Role.OPEN: self._open,
            Role.DUP: self._dup,
            Role.EXECUTE: self._execute,
        }

    def process(self, events: Iterable[Event]) -> None:
        """Take events in the order of time."""
        pending, processes = self._pending, self._processes
        for event in events:
            thread = event[1]
            if len(event) == 5:
                begun = pending.pop(thread, None)
                owner = processes.get(event[0])
                if begun is not None and begun[3] == event[3] and owner is not None:
                    self._end(owner, begun, event[4], event[2])
                continue
            pid = event[0]
            process = processes.get(pid)
            if process is None:
                if pid <= 0:  # of another namespace
                    continue
                process = self._meet(pid)
            if process.foreign:
                continue
            role = ROLES.get(event[3], Role.END)
            if role <= Role.PWRITE:
                opening = process.fds.get(event[4] & _FD)
                if opening is not None and opening.skipped:
                    continue
                pending[thread] = event
            else:
                self._begin(process, role, event)

    def _meet(self, pid: int) -> Process:
        foreign = pid in self._left_out
        process = self._processes[pid] = Process(pid, f"{self._proc}/{pid}", foreign=foreign)
        if not foreign:
            process.identify()
        return process

    def _begin(self, process: Process, role: Role, event: Event) -> None:
        _, thread, at_ns, call, first, second, third, *_ = event
        if role is Role.CLOSE:
            self._close(process, first & _FD, at_ns)
        elif role is Role.CLOSE_RANGE:
            if not third & _KEEP_OPEN:
                for fd in [fd for fd in process.fds if first & _FD <= fd <= second & _FD]:
                    self._close(process, fd, at_ns)
        elif role is Role.END:
            self._gone(process, at_ns)
        elif call != FCNTL or second & _FD in _DUPLICATES:
            if len(self._pending) >= _PENDING:
                self._pending.clear()
            if call == OPENAT and third & _WRITABLE:
                self._write_opens[thread] = at_ns
                self.write_opens += 1
            self._pending[thread] = event

    def _end(self, process: Process, begun: Event, result: int, at_ns: int) -> None:
        role = ROLES[begun[3]]
        if role > Role.PWRITE:
            if role is Role.OPEN and self._write_opens:
                self._write_opens.pop(begun[1], None)
            if result >= 0 or (role is Role.SYNC and result > _RESTARTED and result != -errno.EBADF):
                self._calls[role](process, begun, result, at_ns)
            return
        who = (begun[1], role in (Role.WRITE, Role.PWRITE))
        if _RESTARTED < result < 0 and result != -errno.EAGAIN:
            failing = process.fds.get(begun[4] & _FD)
            if failing is not None and (session := failing.sessions.get(who)) is not None:
                session.fail(-result, at_ns)
                self._dirty[id(failing)] = failing
        if not 0 < result < _MOST_BYTES:
            return
        opening = self._opening(process, begun[4] & _FD, result)
        if opening is not None:
            offset = begun[7] if role >= Role.PREAD and begun[7] != _CURRENT else None
            opening.add(who, offset, result, (begun[2], at_ns), KINDS[role])
            self._dirty[id(opening)] = opening

    def _opening(self, process: Process, fd: int, size: int) -> Opening | None:
        """Return the open file behind a descriptor, perhaps at first sight; None if it does not count."""
        opening = process.fds.get(fd)
        if opening is None:
            if self._openings >= _OPENINGS:
                self.lost.operations += 1
                self.lost.bytes += size
                return None
            opening = self._add(process, fd, in_sight=False)
        if opening.skipped:
            return None
        self.operations += 1
        return opening

    def _add(self, process: Process, fd: int, *, in_sight: bool) -> Opening:
        opening = process.fds[fd] = Opening(process.pid, fd, in_sight)
        self._fresh.append(opening)
        self._openings += 1
        return opening

    def _sendfile(self, process: Process, begun: Event, result: int, at_ns: int) -> None:
        self._copy(process, begun, result, at_ns, ((begun[5], False, begun[6]), (begun[4], True, 0)))

    def _between(self, process: Process, begun: Event, result: int, at_ns: int) -> None:
        self._copy(process, begun, result, at_ns, ((begun[4], False, begun[5]), (begun[6], True, begun[7])))

    def _copy(
        self, process: Process, begun: Event, result: int, at_ns: int, sides: tuple[tuple[int, bool, int], ...]
    ) -> None:
        """Take in an operation between two files; a side is a descriptor, a direction and where its offset is told."""
        if not 0 < result < _MOST_BYTES:
            return
        kind, span = KINDS[ROLES[begun[3]]], (begun[2], at_ns)
        for fd, writes, pointer in sides:
            opening = self._opening(process, fd & _FD, result)
            if opening is None:
                continue
            if pointer:
                opening.carry_on((begun[1], writes), result, span, kind)
            else:
                opening.add((begun[1], writes), None, result, span, kind)
            self._dirty[id(opening)] = opening

    def _seek(self, process: Process, begun: Event, result: int, _at_ns: int) -> None:
        opening = process.fds.get(begun[4] & _FD)
        if opening is not None and not opening.skipped:
            by = begun[5] - (1 << 64) if begun[5] >> 63 else begun[5]
            opening.seek(result, relative_by=by if begun[6] == _SEEK_CUR else None)

    def _sync(self, process: Process, begun: Event, result: int, at_ns: int) -> None:
        opening = process.fds.get(begun[4] & _FD) or self._add(process, begun[4] & _FD, in_sight=False)
        self._syncs.append((process, opening, begun[1], begun[2], at_ns, -result or None))
        self._dirty[id(opening)] = opening

    def _open(self, process: Process, begun: Event, result: int, at_ns: int) -> None:
        self._close(process, result, at_ns)  # unseen
        opening = self._add(process, result, in_sight=True)
        flags = {OPENAT: begun[6], OPEN: begun[5], CREAT: 0}.get(begun[3])
        opening.settled = flags is not None and not flags & os.O_APPEND
        if flags is not None and not flags & os.O_CLOEXEC:
            process.lasting.add(result)

    def _dup(self, process: Process, begun: Event, result: int, at_ns: int) -> None:
        opening = process.fds.get(begun[4] & _FD)
        if opening is process.fds.get(result) is not None:
            return
        self._close(process, result, at_ns)
        if opening is not None:
            process.fds[result] = opening
            opening.descriptors += 1
            opening.fd = result
        call, how = begun[3], begun[5]
        if not (begun[6] & os.O_CLOEXEC if call == DUP3 else call == FCNTL and how & _FD == fcntl.F_DUPFD_CLOEXEC):
            process.lasting.add(result)

    def _execute(self, process: Process, _begun: Event, _result: int, at_ns: int) -> None:
        """Forget what may have been closed by it; what was not is seen again when it is used."""
        for fd in [fd for fd in process.fds if fd not in process.lasting]:
            self._close(process, fd, at_ns)
        process.identify()

    def _close(self, process: Process, fd: int, at_ns: int) -> None:
        opening = process.fds.pop(fd, None)
        process.lasting.discard(fd)
        if opening is None:
            return
        opening.descriptors -= 1
        if opening.seen is not None and not opening.confirmed and at_ns <= opening.seen.looked_ns:
            opening.doubtful = True
        if opening.descriptors:
            opening.fd = next(number for number, other in process.fds.items() if other is opening)
            return
        self._openings -= 1
        opening.closed_ns = at_ns
        if opening.sessions:
            self._ended.append((process, opening))

    def _gone(self, process: Process, at_ns: int | None) -> None:
        for fd, opening in list(process.fds.items()):
            last_ns = max((session.last_ns for session in opening.sessions.values()), default=0)
            self._close(process, fd, at_ns or last_ns)
        self._processes.pop(process.pid, None)

    def opens_since(self, since_ns: int) -> bool:
        """Return whether a file is being opened to be written, since a moment ago."""
        return any(at_ns > since_ns for at_ns in self._write_opens.values())

    def look(self) -> bool:
        """Look at what is behind new descriptors; return whether any was looked at."""
        fresh, self._fresh = self._fresh[:_LOOKS], self._fresh[_LOOKS:]
        for opening in fresh:
            process = self._processes.get(opening.pid)
            if opening.closed_ns is not None or process is None:
                continue
            try:
                opening.seen = self._look_at(process, opening)
            except (FileNotFoundError, ProcessLookupError):
                continue  # closed meanwhile, as the next events tell
            except OSError:
                self._lose(opening)  # it may not be looked at
            if opening.seen is None:
                opening.skipped = True
                opening.sessions.clear()
            else:
                self._looked.append(opening)
        return bool(self._looked)

    def _look_at(self, process: Process, opening: Opening) -> Seen | None:
        """Look through its newest descriptor, or through one that it was duplicated from: that is closed later."""
        try:
            return look(process.folder, opening.fd)
        except FileNotFoundError:
            others = [fd for fd, other in process.fds.items() if other is opening and fd != opening.fd]
            if not others:
                raise
            return look(process.folder, others[0])

    def _lose(self, opening: Opening) -> None:
        self.lost.sessions += len(opening.sessions)
        self.lost.operations += opening.operations
        self.lost.bytes += opening.bytes

    def _settle(self, until_ns: int) -> None:
        """Trust the looks that all events until then have not made doubtful."""
        self.impatient = False
        later: list[Opening] = []
        for opening in self._looked:
            if opening.seen is None or opening.seen.looked_ns > until_ns:
                later.append(opening)
            elif not opening.doubtful:
                opening.settle()
            else:
                opening.seen = None
                if opening.closed_ns is None:  # another of its descriptors is still open
                    opening.doubtful = False
                    self._fresh.append(opening)
                    self.impatient = True
        self._looked = later

    def take(self, until_ns: int) -> list[Sample]:
        """Return what is new of the files that are known; all events until then have been taken in."""
        self._settle(until_ns)
        samples: list[Sample] = []
        dirty, self._dirty = self._dirty, {}
        for opening in dirty.values():
            process = self._processes.get(opening.pid)
            if opening.closed_ns is not None or opening.skipped or process is None:
                continue
            if not opening.confirmed:
                self._dirty[id(opening)] = opening
            elif self._is_still(process, opening):
                self._tell(process, opening, samples)
            else:
                self._close(process, opening.fd, max(session.last_ns for session in opening.sessions.values()))
        ended, self._ended = self._ended, []
        for process, opening in ended:
            if opening.confirmed:
                self._tell(process, opening, samples)
            elif opening.in_sight or opening.doubtful:
                self._lose(opening)
        self._tell_syncs(samples)
        return samples

    def _is_still(self, process: Process, opening: Opening) -> bool:
        """Return whether the descriptor is still that file's: it may have been closed by a way that is not seen."""
        if not opening.sessions or opening.seen is None:
            return True
        try:
            size = size_of(process.folder, opening.fd, opening.seen)
        except OSError:
            return True  # closed, which the next events tell
        if size is not None:
            opening.size = size
            opening.strikes = 0
            return True
        opening.strikes += 1  # at first this is a close that the next events tell
        self._dirty[id(opening)] = opening
        return opening.strikes < 3

    def _tell(self, process: Process, opening: Opening, samples: list[Sample]) -> None:
        ticks = process.start_ticks
        if ticks is None:
            self._lose(opening)
            return
        for session in opening.sessions.values():
            if session.told == session.operations and opening.closed_ns is None:
                continue
            session.told = session.operations
            session.comm = session.comm or _comm(process, session)
            sample = sample_of(opening, session, ticks)
            if sample is not None:
                samples.append(sample)

    def _tell_syncs(self, samples: list[Sample]) -> None:
        waiting: list[_Sync] = []
        for sync in self._syncs:
            process, opening, thread, begun_ns, at_ns, error = sync
            ticks = process.start_ticks
            if opening.seen is not None and opening.confirmed and ticks is not None:
                seen = opening.seen
                took_ns = at_ns - begun_ns
                place = opening.pid, ticks, thread, seen.device, seen.inode
                samples.append(FileLifeEvent(at_ns, "synced", *place, took_ns, seen.path, error=error))
            elif opening.closed_ns is None and not opening.skipped:
                waiting.append(sync)
            elif not opening.skipped:
                self.lost.events += 1
        self._syncs = waiting

    def sweep(self) -> None:
        """Forget the processes that are gone without a word."""
        for process in list(self._processes.values()):
            if not os.path.exists(process.folder):
                self._gone(process, None)
        if self._openings > _OPENINGS // 2:
            for process in self._processes.values():
                for fd in [fd for fd, opening in process.fds.items() if opening.skipped]:
                    del process.fds[fd]
            self._openings = sum(len(process.fds) for process in self._processes.values())


def _comm(process: Process, session: Session) -> str:
    try:
        with open(f"{process.folder}/task/{session.tid}/comm", "rb", buffering=0) as stream:
            return text(stream.read(64).rstrip(b"\n"))
    except OSError:
        return process.comm
