"""From the sessions that the kernel counts to transfers: one process, one file, one direction, one opening."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from ckptprof.detect.transfers.file_events import FileEvents, is_of_all
from ckptprof.detect.transfers.operations import Operations, minus, since
from ckptprof.detect.transfers.traced import TracedTransfer
from ckptprof.detect.world.keys import FileKey, ProcessKey
from ckptprof_collectors.samples import FileActivity, FileLifeEvent

IDLE_NS = 60_000_000_000  # a file that stays open without any operation for so long is taken as done with
REOPEN_NS = 1_000_000_000  # a file that is opened again so soon, where it ended, is written on
NEAR_NS = 1_500_000_000  # what polling sees of a stream lies within so much of it
MAX_JUDGED = 8192  # that were judged, 1.7 KB each: of more the oldest are forgotten soon
MAX_SESSIONS = 65_536  # that are followed: of those whose end was never told the oldest are forgotten
_COVERED = 0.95
_KERNELS = ("/proc/", "/sys/")


@dataclass(slots=True)
class _Session:
    raw: FileActivity  # its last sample
    stream: TracedTransfer
    base: FileActivity | None = None  # what belongs to an earlier stream
    since_ns: int = 0  # when what is beyond it began


class TracedTransfers:
    """Follows the sessions of all processes; only those that moved are looked at."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._sessions: dict[str, _Session] = {}
        self._by_process: dict[ProcessKey, set[str]] = {}  # sessions that nobody closed
        self._gone: deque[tuple[int, ProcessKey]] = deque()
        self._files: dict[tuple[FileKey, bool], list[TracedTransfer]] = {}
        self._open: dict[int, TracedTransfer] = {}  # by identity, those that moved longest ago first
        self._open_of: dict[ProcessKey, dict[int, TracedTransfer]] = {}
        self._streams_of: dict[ProcessKey, dict[int, TracedTransfer]] = {}
        self._done: dict[int, TracedTransfer] = {}
        self._over: dict[int, TracedTransfer] = {}
        self._lives = FileEvents()

    def __bool__(self) -> bool:
        """Whether anything was traced of late."""
        return bool(self._over) or bool(self._open)

    def __len__(self) -> int:
        """Return how many things are held."""
        books = (self._sessions, self._by_process, self._gone, self._files, self._open, self._open_of, self._streams_of)
        return sum(len(book) for book in (*books, self._done, self._over)) + len(self._lives)

    def take(self, activity: FileActivity, before_ns: int) -> None:
        """Take one sample of a session; `before_ns` is the time of the frame before."""
        known = self._sessions.get(activity.session)
        if known is None:
            if activity.operations <= 0 or (activity.path or "").startswith(_KERNELS):
                return
            stream = self._stream_for(activity)
            if len(self._sessions) >= MAX_SESSIONS:
                self._drop(next(iter(self._sessions)))
            known = self._sessions[activity.session] = _Session(activity, stream)
            self._by_process.setdefault(stream.process, set()).add(activity.session)
        elif activity.operations < known.raw.operations:
            return  # older than what is known
        part = self._part(known, activity, before_ns)
        if part is not None:
            self._give(known.stream, part, before_ns)
        if activity.closed_ns is not None:
            self._drop(activity.session)

    def _part(self, known: _Session, activity: FileActivity, before_ns: int) -> FileActivity | None:
        """Return what the session did in its stream, which is a new one if the last was over; None: nothing."""
        moved = activity.operations > known.raw.operations
        stream = known.stream
        if stream.is_judged and not moved:
            return None
        again_ns = _reads_again_ns(stream, known.raw, activity, before_ns) if moved else None
        if moved and (stream.is_judged or again_ns is not None or _begins_anew(stream, known.raw, activity)):
            known.base = known.raw
            known.since_ns = max(since(known.raw, activity, before_ns), stream.closed_ns or 0, again_ns or 0)
            part = minus(activity, known.base, known.since_ns)
            known.stream = self._stream_for(part, but=stream)
        else:
            part = minus(activity, known.base, known.since_ns) if known.base is not None else activity
        known.raw = activity
        return part

    def _stream_for(self, activity: FileActivity, but: TracedTransfer | None = None) -> TracedTransfer:
        """Return the stream that a session belongs to, `but` not that one; a new one if there is none."""
        process, file = (activity.pid, activity.start_ticks), (activity.device, activity.inode)
        for stream in reversed(self._files.get((file, activity.writes), ())):
            if stream.process == process:
                if stream is not but and _continues(stream, activity):
                    return stream
                if stream.is_unclosed:  # truncated, or begun again, by another thread
                    self._finish(stream)
                break
        stream = TracedTransfer(
            process=process,
            file=file,
            writes=activity.writes,
            path=activity.path or unknown_path(file),
            first_ns=activity.first_ns,
            last_ns=activity.last_ns,
            before_ns=activity.first_ns,
            seen_by="trace",
            generation=activity.generation,
            comm=activity.comm,
        )
        self._files.setdefault((file, stream.writes), []).append(stream)
        self._streams_of.setdefault(process, {})[id(stream)] = stream
        self._lives.adopt(stream)
        return stream

    def _give(self, stream: TracedTransfer, part: FileActivity, before_ns: int) -> None:
        if part.last_ns >= stream.active_ns:
            stream.size = part.size
        stream.take(part, before_ns)
        if part.path is not None and part.path not in (stream.path, stream.earlier_path):
            if not stream.path.startswith("/"):  # nobody had told it
                stream.path = part.path
                self._lives.place(stream)
            else:
                self._lives.rename(stream, part.path)
        self._settle(stream)

    def _settle(self, stream: TracedTransfer) -> None:
        """Put a stream that was touched where it belongs."""
        if stream.is_judged:
            return
        stream.last_ns = max(stream.last_ns, stream.last_sign_ns)
        if stream.is_unclosed:
            self._over.pop(id(stream), None)
            self._open.pop(id(stream), None)
            self._open[id(stream)] = stream
            self._open_of.setdefault(stream.process, {})[id(stream)] = stream
            self._done.pop(id(stream), None)
        else:
            self._finish(stream)

    def _finish(self, stream: TracedTransfer) -> None:
        self._open.pop(id(stream), None)
        siblings = self._open_of.get(stream.process)
        if siblings is not None and siblings.pop(id(stream), None) is not None and not siblings:
            del self._open_of[stream.process]
        stream.over_ns = stream.active_ns
        stream.is_unclosed = False
        self._done[id(stream)] = stream
        self._over.pop(id(stream), None)
        self._over[id(stream)] = stream

    def observe(self, event: FileLifeEvent) -> None:
        """Take an event of a file's life; the sessions of the same frame are to be learnt before."""
        for stream in self._lives.observe(event, self._writers(event), self._of_process(event)):
            self._settle(stream)

    def _writers(self, event: FileLifeEvent) -> list[TracedTransfer]:
        if event.device is None or event.inode is None:
            return []
        return self._files.get(((event.device, event.inode), True), [])

    def _of_process(self, event: FileLifeEvent) -> list[TracedTransfer]:
        """Return the streams of its process, if the event says too little of what it is about."""
        named = event.kind == "renamed" and event.path is not None and not event.path.startswith("/")
        if not named and not is_of_all(event):
            return []
        return list(self._streams_of.get((event.pid, event.start_ticks), {}).values())

    def close(self, stream: TracedTransfer, at_ns: int) -> None:
        """Take note that polling saw the file closed: not every thread that used it tells so."""
        if stream.is_unclosed and at_ns >= stream.active_ns:
            self._finish(stream)

    def end(self, process: ProcessKey, at_ns: int) -> None:
        """Take note that a process has ended; the last samples of its sessions may still come."""
        for stream in list(self._open_of.get(process, {}).values()):
            self._finish(stream)
        if process in self._by_process:
            self._gone.append((at_ns, process))

    def take_done(self, now_ns: int) -> list[TracedTransfer]:
        """Return the streams that are over since the last call, and those that stand still for long."""
        while self._open:
            stream = next(iter(self._open.values()))
            if now_ns - stream.last_ns < IDLE_NS:
                break
            self._finish(stream)
        done, self._done = list(self._done.values()), {}
        return done

    def take_idle(self) -> None:
        """Take everything as over: the recording is."""
        for stream in list(self._open.values()):
            self._finish(stream)

    def is_moving(self, since_ns: int) -> bool:
        """Return whether any open file was used after that."""
        return bool(self._open) and next(reversed(self._open.values())).last_ns > since_ns

    def open_of(self, process: ProcessKey) -> list[TracedTransfer]:
        """Return the streams of a process whose files are still open."""
        return list(self._open_of.get(process, {}).values())

    def open_processes(self) -> list[ProcessKey]:
        """Return the processes that have files open."""
        return list(self._open_of)

    def open_streams(self) -> list[TracedTransfer]:
        """Return all streams whose files are still open."""
        return list(self._open.values())

    def near(self, file: FileKey, low_ns: int, high_ns: int) -> Iterator[TracedTransfer]:
        """Yield the streams of a file, by whomever and in either direction, that overlap a time, give or take."""
        for writes in (True, False):
            for stream in self._files.get((file, writes), ()):
                if stream.operations is not None:
                    start_ns, end_ns = stream.edges()
                    if start_ns - NEAR_NS <= high_ns and low_ns <= max(end_ns, stream.last_ns) + NEAR_NS:
                        yield stream

    def moved_by(self, process: ProcessKey) -> list[TracedTransfer]:
        """Return what a process did of late."""
        return list(self._streams_of.get(process, {}).values())

    def forget_before(self, at_ns: int) -> None:
        """Drop the streams that were over before `at_ns`."""
        for stream in list(itertools.takewhile(lambda stream: stream.last_ns < at_ns, self._over.values())):
            self._forget(stream)
        crowd = list(itertools.islice(self._over.values(), max(0, len(self._over) - MAX_JUDGED)))
        for stream in self._over.values():
            if stream.is_judged:
                self._lives.forget(stream)  # no renaming is told of what was judged
        for stream in crowd:
            if stream.is_judged:  # one that still waits keeps no others
                self._forget(stream)
        while self._gone and self._gone[0][0] < at_ns:
            _, process = self._gone.popleft()
            for session in list(self._by_process.get(process, ())):
                self._drop(session)
        self._lives.forget_before(at_ns)

    def _forget(self, stream: TracedTransfer) -> None:
        del self._over[id(stream)]
        self._done.pop(id(stream), None)
        key = (stream.file, stream.writes)
        left = [other for other in self._files.get(key, ()) if other is not stream]
        if left:
            self._files[key] = left
        else:
            self._files.pop(key, None)
        siblings = self._streams_of.get(stream.process, {})
        siblings.pop(id(stream), None)
        if not siblings:
            self._streams_of.pop(stream.process, None)
        stream.is_judged = True
        self._lives.forget(stream)

    def _drop(self, session: str) -> None:
        known = self._sessions.pop(session, None)
        if known is not None:
            process = known.stream.process
            siblings = self._by_process.get(process, set())
            siblings.discard(session)
            if not siblings:
                self._by_process.pop(process, None)


def unknown_path(file: FileKey) -> str:
    """Return what stands for the path of a file of which nobody told it."""
    return f"(path not seen)/device {file[0]}/inode {file[1]}"


def _continues(stream: TracedTransfer, activity: FileActivity) -> bool:
    """Return whether a new session belongs to the transfer that was the last of its process, file and direction."""
    if stream.is_judged or stream.generation != activity.generation or (sums := stream.operations) is None:
        return False
    if not stream.is_unclosed and (stream.closed_ns is None or activity.first_ns >= stream.closed_ns):
        ended_ns = sums.last_ns if stream.closed_ns is None else stream.closed_ns
        goes_on = activity.first_offset in (sums.high_offset, _end(stream)) and activity.first_offset > 0
        return goes_on and activity.first_ns - ended_ns <= REOPEN_NS
    if activity.first_ns <= sums.last_ns:
        return True
    if activity.writes and activity.size < sums.high_offset:
        return False  # truncated meanwhile
    again = activity.first_offset == sums.low_offset and _covers(sums)
    again = again or (not activity.writes and _covers(sums) and activity.low_offset < sums.high_offset)
    return not (again and activity.first_ns - sums.last_ns > REOPEN_NS)


def _end(stream: TracedTransfer) -> int:
    return max(stream.threads, key=lambda session: session.last_ns).end_offset


def _covers(sums: Operations) -> bool:
    """Return whether all of the stretch that it was in was moved."""
    return sums.bytes >= _COVERED * (sums.high_offset - sums.low_offset)


def _begins_anew(stream: TracedTransfer, before: FileActivity, after: FileActivity) -> bool:
    """Return whether a session that nobody closes goes over its file again, after the file itself was closed."""
    if not stream.writes or stream.is_unclosed or stream.closed_ns is None or after.last_ns <= stream.closed_ns:
        return False
    grown = after.high_offset > before.high_offset
    sums = stream.operations
    return sums is not None and _covers(sums) and (not grown or after.size < sums.high_offset)


def _reads_again_ns(stream: TracedTransfer, before: FileActivity, after: FileActivity, before_ns: int) -> int | None:
    """Return when a thread began to read again what it had read or mapped, after a pause; None: it did not.

    The kernel's session goes on if nobody closed it: a mapping is let go of without a sign, and who reads by calls
    after a pause has opened the file again.
    """
    begun_ns = min(before_ns, after.last_ns - max(0, (after.call_ns or 0) - (before.call_ns or 0)))
    if stream.writes or begun_ns - stream.active_ns <= REOPEN_NS or (sums := stream.operations) is None:
        return None
    mapped = sums.faulted_bytes * 2 > sums.bytes and after.faulted_bytes == before.faulted_bytes
    again = mapped or (_covers(sums) and after.high_offset <= before.high_offset)
    return begun_ns if again else None
