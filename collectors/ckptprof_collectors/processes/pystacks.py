"""The Python stacks of a process, by `py-spy dump --nonblocking`: the one program that ckptprof runs.

py-spy copies the interpreter's memory (process_vm_readv(2)) and neither stops nor changes the process; a stack that
changed meanwhile is given up and looked at again. It needs CAP_SYS_PTRACE for other users' processes.
One look at a time runs in a thread of its own, bounded in time and output, with a lower priority than its target's.
py-spy opens the program of its target. Where that lies on a file system that does not answer, py-spy cannot be killed:
it is left behind (`abandoned`), and its target is not looked at again.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import signal
import sys
import threading
import time
from collections import deque
from typing import NamedTuple

import msgspec

from ckptprof_collectors.abandoned import ABANDONED, END_SECONDS, has_ended, sleep_of, wait
from ckptprof_collectors.holders import HOLDERS, MAX_EACH
from ckptprof_collectors.privileges import RAISED
from ckptprof_collectors.processes.process import Process
from ckptprof_collectors.samples import StackSample, ThreadStack, text

NAME = "stacks"
TIMEOUT_SECONDS = 2.0
MAX_OUTPUT_BYTES = 4 << 20
MAX_THREADS = 64
MAX_FRAMES = 64  # of one thread: the innermost, and as many of the outermost
MAX_NAME = 256  # characters of a function or file
NICENESS = 5
_READ_AT = 0.87  # of the time to its first output: so late it reads the stacks, all before is to find them (measured)
_MAX_FAILURES = 10  # of one process, in a row: then it is left alone
_TOLD_FAILURES = 3  # a look that is not allowed to stop its target fails now and then
_MAX_REASONS = 8  # that are told
_FORBIDDEN = "py-spy may not read the process: it needs CAP_SYS_PTRACE, or kernel.yama.ptrace_scope=0 for one's own"
_HANGS = "py-spy cannot be killed, because it reads a file system that does not answer"


class _Frame(msgspec.Struct):
    name: str
    filename: str
    line: int = 0


class _Thread(msgspec.Struct):
    os_thread_id: int | None = None
    thread_name: str | None = None
    active: bool = False
    frames: list[_Frame] = []


class Dump(NamedTuple):
    """What one run of py-spy told."""

    raw: bytes  # JSON; empty if it failed
    complaint: str  # why it failed
    cost_ns: int  # CPU time
    read_ns: int  # CLOCK_MONOTONIC, when about it read the stacks
    hangs: bool = False  # py-spy cannot be killed


def find_program() -> str | None:
    """Find py-spy: beside this Python, or in PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), "py-spy")
    if os.access(beside, os.X_OK):
        return beside
    import shutil  # noqa: PLC0415 - seldom needed, and it brings bz2 and lzma into the sampler

    return shutil.which("py-spy")


class StackLooker:
    """Takes one look at a time; what is asked for meanwhile is refused."""

    name = NAME

    def __init__(self, program: str | None) -> None:
        """Make it for the program that `find_program` found; the thread starts with the first question."""
        self._program = program
        self._questions: queue.Queue[tuple[int, int] | None] = queue.Queue(1)
        self._answers: deque[StackSample] = deque(maxlen=64)
        self._thread: threading.Thread | None = None
        self._failed: dict[tuple[int, int], int] = {}
        self.busy = False
        self._reason: str | None = None  # why looks fail, or none can be taken
        self._told: set[str] = set()
        self.looks = self.failures = 0
        self.cost_ns = 0
        if program is None:
            self._reason = "py-spy is not installed: Python stacks are not sampled"

    @property
    def can_look(self) -> bool:
        return self._program is not None

    def may_look(self, process: Process) -> bool:
        if self._program is None or self.busy or ABANDONED.is_full(NAME):
            return False
        if ABANDONED.count(NAME) and ABANDONED.count(NAME, user=HOLDERS.user_of(process.pid)) >= MAX_EACH:
            return False
        return self._failed.get((process.pid, process.start_ticks), 0) < _MAX_FAILURES

    def ask(self, process: Process) -> bool:
        """Ask for a look; never waits. Returns whether it will be taken."""
        if not self.may_look(process):
            return False
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=NAME, daemon=True)
            self._thread.start()
        self.busy = True
        self._questions.put_nowait((process.pid, process.start_ticks))
        return True

    def take(self) -> list[StackSample]:
        found = []
        while self._answers:
            found.append(self._answers.popleft())
        return found

    def take_reason(self) -> str | None:
        """Return each reason for missing samples once."""
        reason = self._reason
        if reason is None or reason in self._told or len(self._told) >= _MAX_REASONS:
            return None
        self._told.add(reason)
        return reason

    def _run(self) -> None:
        RAISED.lower()  # a thread begins as the tick that started it; py-spy has the ambient ones
        while (question := self._questions.get()) is not None:
            self._look(*question)
            self.busy = False

    def _look(self, pid: int, start_ticks: int) -> None:
        if self._program is None:
            return
        self.looks += 1
        try:
            found = dump(self._program, pid)
        except OSError as error:
            self._fail((pid, start_ticks), f"py-spy cannot be started: {error.strerror}")
            return
        self.cost_ns += found.cost_ns
        threads = parse(found.raw)
        if not threads:
            self._fail((pid, start_ticks), found.complaint or "py-spy printed nothing", for_good=found.hangs)
            return
        self._failed.pop((pid, start_ticks), None)
        self._answers.append(StackSample(found.read_ns, pid, start_ticks, found.cost_ns, threads))

    def _fail(self, process: tuple[int, int], complaint: str, *, for_good: bool = False) -> None:
        self.failures += 1
        if len(self._failed) >= 1024:
            del self._failed[next(iter(self._failed))]
        count = _MAX_FAILURES if for_good or complaint == _FORBIDDEN else self._failed.get(process, 0) + 1
        self._failed[process] = count
        with RAISED:  # or the process may be hidden
            if count >= _TOLD_FAILURES and os.path.exists(f"/proc/{process[0]}"):  # else there is no word of it
                self._reason = complaint

    def close(self) -> None:
        """End the thread after its current look, without waiting for it."""
        if self._thread is not None:
            with contextlib.suppress(queue.Full):
                self._questions.put_nowait(None)


def dump(program: str, pid: int, *, timeout_seconds: float = TIMEOUT_SECONDS) -> Dump:
    """Run it once. Raises OSError if it cannot be started."""
    began_ns = time.monotonic_ns()
    out_read, out_write = os.pipe2(os.O_CLOEXEC)
    told_read, told_write = os.pipe2(os.O_CLOEXEC)
    try:
        child = os.posix_spawn(
            program,
            [program, "dump", "--pid", str(pid), "--json", "--nonblocking"],
            {"LC_ALL": "C.UTF-8", "PATH": os.defpath},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, out_write, 1),
                (os.POSIX_SPAWN_DUP2, told_write, 2),
            ],
            setpgroup=0,  # the keys of a terminal are not for it
            setsigmask=[],
            setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGPIPE],
        )
    except OSError:
        os.close(out_read)
        os.close(told_read)
        raise
    finally:
        os.close(out_write)
        os.close(told_write)
    with contextlib.suppress(OSError):  # a sandbox may refuse it
        os.setpriority(os.PRIO_PROCESS, child, NICENESS)
    try:
        done, raw, told, first_ns = _drain(out_read, told_read, time.monotonic() + timeout_seconds)
    finally:
        os.close(out_read)
        os.close(told_read)
    if not done:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    read_ns = began_ns + int(_READ_AT * (first_ns - began_ns))
    if (ended := wait(child, END_SECONDS)) is None:
        ABANDONED.add(NAME, lambda: has_ended(child), user=HOLDERS.user_of(pid))
        hangs = sleep_of(child) is not None
        return Dump(b"", f"process {pid}: {_HANGS}" if hangs else "py-spy does not end", 0, read_ns, hangs=hangs)
    status, usage = ended
    cost_ns = int((usage.ru_utime + usage.ru_stime) * 1e9)
    if not done:
        late = f"py-spy did not finish within {timeout_seconds:g} s or {MAX_OUTPUT_BYTES >> 20} MiB"
        return Dump(b"", late, cost_ns, read_ns)
    return Dump(b"", _complaint(told), cost_ns, read_ns) if status else Dump(raw, "", cost_ns, read_ns)


def _drain(out: int, told: int, deadline: float) -> tuple[bool, bytes, bytes, int]:
    """Read both pipes: (True if they ended within the limits, stdout, stderr, time of the first output)."""
    poll = select.poll()
    parts: dict[int, list[bytes]] = {out: [], told: []}
    for fd in parts:
        poll.register(fd, select.POLLIN)
    open_fds, total, first_ns = set(parts), 0, 0
    while open_fds and total <= MAX_OUTPUT_BYTES and (left := deadline - time.monotonic()) > 0:
        for fd, _ in poll.poll(left * 1000):
            data = os.read(fd, 1 << 16)
            if fd == out:
                first_ns = first_ns or time.monotonic_ns()
            total += len(data)
            parts[fd].append(data)
            if not data:
                poll.unregister(fd)
                open_fds.discard(fd)
    return not open_fds, b"".join(parts[out]), b"".join(parts[told]), first_ns or time.monotonic_ns()


def _complaint(told: bytes) -> str:
    lines = [line.strip() for line in text(told).splitlines() if line.strip()]
    if any("ermission" in line for line in lines):
        return _FORBIDDEN
    return f"py-spy failed: {(lines[-1] if lines else 'no output')[:200]}"


def parse(raw: bytes) -> tuple[ThreadStack, ...]:
    """Parse a dump; no threads if it is malformed."""
    try:
        threads = msgspec.json.decode(raw, type=list[_Thread])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ()
    return tuple(
        ThreadStack(thread.os_thread_id, _short(thread.thread_name or "") or None, thread.active, _frames(thread))
        for thread in threads[:MAX_THREADS]
    )


def _frames(thread: _Thread) -> tuple[tuple[str, str, int], ...]:
    frames = thread.frames
    if len(frames) > 2 * MAX_FRAMES:
        frames = frames[:MAX_FRAMES] + frames[-MAX_FRAMES:]
    return tuple((_short(frame.name), _short(frame.filename), frame.line) for frame in frames)


def _short(name: str) -> str:
    """Bound a name: no lone surrogate, at most MAX_NAME characters; the end of a path is kept."""
    return text(name.encode("utf-8", "surrogatepass"))[-MAX_NAME:]
