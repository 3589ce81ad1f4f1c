"""The Python stacks of a process, by `py-spy dump --nonblocking`: the one program that ckptprof runs.

py-spy copies the interpreter's memory (process_vm_readv(2)) and neither stops nor changes the process; a stack that
changed during the copy is discarded and sampled again. It needs CAP_SYS_PTRACE for other users' processes.
One sample at a time runs in a separate thread, bounded in time and output, with a lower priority than its target's.
py-spy opens the program of its target. If that is on a file system that does not answer, py-spy cannot be killed: it is
left behind (`abandoned`), and its target is not sampled again.
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
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from ckptprof_collectors.abandoned import ABANDONED, END_SECONDS, reap, uninterruptible_sleep, wait_child
from ckptprof_collectors.blocking_processes import BLOCKING_PROCESSES, MAX_PER_USER
from ckptprof_collectors.privileges import RAISED
from ckptprof_collectors.processes.process import Process
from ckptprof_collectors.samples import StackSample, ThreadStack, text

NAME = "stacks"
TIMEOUT_SECONDS = 2.0
MAX_OUTPUT_BYTES = 4 << 20
MAX_SAMPLES = 512  # not consumed yet
MAX_THREADS = 64
MAX_FRAMES = 64  # of one thread: the innermost, and as many of the outermost
MAX_NAME = 256  # characters of a function or file
NICENESS = 5
_READ_TIME_SHARE = 0.87  # of the time to its first output: when it reads the stacks, after finding them (measured)
_MAX_FAILURES = 10  # of one process, in a row: then it is no longer sampled
_MIN_REPORTED_FAILURES = 3  # a sample without stopping the target fails now and then
_MAX_REASONS = 8  # reported
_FORBIDDEN = "py-spy may not read the process: it needs CAP_SYS_PTRACE, or kernel.yama.ptrace_scope=0 for one's own"
_UNKILLABLE = "py-spy cannot be killed, because it reads a file system that does not answer"


class _PySpyFrame(msgspec.Struct):
    name: str
    filename: str
    line: int = 0


class _PySpyThread(msgspec.Struct):
    os_thread_id: int | None = None
    thread_name: str | None = None
    active: bool = False
    frames: list[_PySpyFrame] = []


class StackDump(NamedTuple):
    """Result of one run of py-spy."""

    raw: bytes  # JSON; empty if it failed
    complaint: str  # why it failed
    cost_ns: int  # CPU time
    read_ns: int  # CLOCK_MONOTONIC, estimated time of reading the stacks
    start_ns: int  # CLOCK_MONOTONIC
    is_unkillable: bool = False  # py-spy cannot be killed


class PySpyCommand(NamedTuple):
    """A subcommand of py-spy, and how its output is parsed."""

    arguments: tuple[str, ...]
    output_fd: int  # that it writes to
    timeout_seconds: float
    parse: Callable[[StackDump, int, int], list[StackSample]]  # the output for (pid, start_ticks); empty if it failed


def parse(raw: bytes) -> tuple[ThreadStack, ...]:
    """Parse a dump; no threads if it is malformed."""
    try:
        threads = msgspec.json.decode(raw, type=list[_PySpyThread])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ()
    return tuple(
        ThreadStack(
            thread.os_thread_id,
            _bounded_name(thread.thread_name or "") or None,
            thread.active,
            bounded_frames([(frame.name, frame.filename, frame.line) for frame in thread.frames]),
        )
        for thread in threads[:MAX_THREADS]
    )


def _parse_dump(found: StackDump, pid: int, start_ticks: int) -> list[StackSample]:
    threads = parse(found.raw)
    return [StackSample(found.read_ns, pid, start_ticks, found.cost_ns, threads)] if threads else []


DUMP = PySpyCommand(("dump", "--json", "--nonblocking"), 1, TIMEOUT_SECONDS, _parse_dump)


def bounded_frames(frames: list[tuple[str, str, int]]) -> tuple[tuple[str, str, int], ...]:
    """Bound the frames of a thread, innermost first."""
    if len(frames) > 2 * MAX_FRAMES:
        frames = frames[:MAX_FRAMES] + frames[-MAX_FRAMES:]
    return tuple((_bounded_name(name), _bounded_name(file), line) for name, file, line in frames)


def _bounded_name(name: str) -> str:
    """Bound a name: no lone surrogate, at most MAX_NAME characters; the end of a path is retained."""
    return text(name.encode("utf-8", "surrogatepass"))[-MAX_NAME:]


def find_program() -> str | None:
    """Find py-spy: next to this Python, or in PATH."""
    bundled = os.path.join(os.path.dirname(sys.executable), "py-spy")
    if os.access(bundled, os.X_OK):
        return bundled
    import shutil  # noqa: PLC0415 - seldom needed, and it brings bz2 and lzma into the sampler

    return shutil.which("py-spy")


class StackSampler:
    """Runs one command of py-spy at a time; further requests are refused."""

    name = NAME

    def __init__(self, program: str | None, command: PySpyCommand = DUMP) -> None:
        """`program`: of `find_program`. The thread starts with the first request."""
        self._program, self._command = program, command
        self._pidfd = -1  # of py-spy
        self._requests: queue.Queue[tuple[int, int] | None] = queue.Queue(1)
        self._samples: deque[StackSample] = deque(maxlen=MAX_SAMPLES)
        self._thread: threading.Thread | None = None
        self._failed: dict[tuple[int, int], int] = {}
        self.busy = False
        self._reason: str | None = None  # why samples fail, or none can be taken
        self._reported: set[str] = set()
        self.samples = self.failures = 0
        self.cost_ns = 0
        if program is None:
            self._reason = "py-spy is not installed: Python stacks are not sampled"

    @property
    def is_available(self) -> bool:
        return self._program is not None

    def can_sample(self, process: Process) -> bool:
        if self._program is None or self.busy or ABANDONED.is_full(NAME):
            return False
        if (
            ABANDONED.count(NAME)
            and ABANDONED.count(NAME, user=BLOCKING_PROCESSES.user_of(process.pid)) >= MAX_PER_USER
        ):
            return False
        return self._failed.get((process.pid, process.start_ticks), 0) < _MAX_FAILURES

    def request(self, process: Process) -> bool:
        """Request a sample; never waits. Returns False if refused."""
        if not self.can_sample(process):
            return False
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=NAME, daemon=True)
            self._thread.start()
        self.busy = True
        self._requests.put_nowait((process.pid, process.start_ticks))
        return True

    def consume(self) -> list[StackSample]:
        return [self._samples.popleft() for _ in range(len(self._samples))]

    def consume_reason(self) -> str | None:
        """Return each reason for missing samples once."""
        reason = self._reason
        if reason is None or reason in self._reported or len(self._reported) >= _MAX_REASONS:
            return None
        self._reported.add(reason)
        return reason

    def _run(self) -> None:
        RAISED.lower()  # a thread starts with the capabilities of the tick; py-spy has the ambient ones
        while (question := self._requests.get()) is not None:
            self._sample(*question)
            self.busy = False

    def _sample(self, pid: int, start_ticks: int) -> None:
        if self._program is None:
            return
        self.samples += 1
        try:
            found = run_py_spy(self._program, pid, self._command, on_start=self._record_start)
        except OSError as error:
            self._fail((pid, start_ticks), f"py-spy cannot be started: {error.strerror}")
            return
        finally:
            pidfd, self._pidfd = self._pidfd, -1
            if pidfd >= 0:
                os.close(pidfd)
        self.cost_ns += found.cost_ns
        samples = self._command.parse(found, pid, start_ticks)
        if not samples:
            self._fail((pid, start_ticks), found.complaint or "py-spy printed nothing", for_good=found.is_unkillable)
            return
        self._failed.pop((pid, start_ticks), None)
        self._samples.extend(samples)

    def _record_start(self, child: int) -> None:
        with contextlib.suppress(OSError):  # before Linux 5.3: then each run lasts to its end
            self._pidfd = os.pidfd_open(child)

    def stop(self) -> None:
        """End py-spy, which then writes its output."""
        with contextlib.suppress(OSError):  # it has ended
            if self._pidfd >= 0:
                signal.pidfd_send_signal(self._pidfd, signal.SIGINT)

    def _fail(self, process: tuple[int, int], complaint: str, *, for_good: bool = False) -> None:
        self.failures += 1
        if len(self._failed) >= 1024:
            del self._failed[next(iter(self._failed))]
        count = _MAX_FAILURES if for_good or complaint == _FORBIDDEN else self._failed.get(process, 0) + 1
        self._failed[process] = count
        with RAISED:  # or the process may be hidden
            if count >= _MIN_REPORTED_FAILURES and os.path.exists(f"/proc/{process[0]}"):  # else it is not reported
                self._reason = complaint

    def close(self) -> None:
        """End the thread after its current sample, without waiting for it."""
        if self._thread is not None:
            with contextlib.suppress(queue.Full):
                self._requests.put_nowait(None)


def run_py_spy(
    program: str, pid: int, command: PySpyCommand = DUMP, *, on_start: Callable[[int], None] = lambda _: None
) -> StackDump:
    """Run it once; `on_start` gets its pid. Raises OSError if it cannot be started."""
    start_ns = time.monotonic_ns()
    out_read, out_write = os.pipe2(os.O_CLOEXEC)
    err_read, err_write = os.pipe2(os.O_CLOEXEC)
    try:
        child = os.posix_spawn(
            program,
            [program, *command.arguments, "--pid", str(pid)],
            {"LC_ALL": "C.UTF-8", "PATH": os.defpath},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, err_write, 1),
                (os.POSIX_SPAWN_DUP2, err_write, 2),
                (os.POSIX_SPAWN_DUP2, out_write, command.output_fd),
            ],
            setpgroup=0,  # signals of a terminal's keys are not for it
            setsigmask=[],
            setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGPIPE],
        )
    except OSError:
        os.close(out_read)
        os.close(err_read)
        raise
    finally:
        os.close(out_write)
        os.close(err_write)
    on_start(child)
    with contextlib.suppress(OSError):  # a sandbox may refuse it
        os.setpriority(os.PRIO_PROCESS, child, NICENESS)
    try:
        done, raw, errors, first_ns = _drain(out_read, err_read, time.monotonic() + command.timeout_seconds)
    finally:
        os.close(out_read)
        os.close(err_read)
    if not done:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    read_ns = start_ns + int(_READ_TIME_SHARE * (first_ns - start_ns))
    if (ended := wait_child(child, END_SECONDS)) is None:
        ABANDONED.add(NAME, lambda: reap(child), user=BLOCKING_PROCESSES.user_of(pid))
        hangs = uninterruptible_sleep(child) is not None
        return StackDump(
            b"", f"process {pid}: {_UNKILLABLE}" if hangs else "py-spy does not end", 0, read_ns, start_ns, hangs
        )
    status, usage = ended
    cost_ns = int((usage.ru_utime + usage.ru_stime) * 1e9)
    if not done:
        complaint = f"py-spy did not finish within {command.timeout_seconds:g} s or {MAX_OUTPUT_BYTES >> 20} MiB"
        return StackDump(b"", complaint, cost_ns, read_ns, start_ns)
    return StackDump(b"" if status else raw, _complaint(errors) if status else "", cost_ns, read_ns, start_ns)


def _drain(out: int, err: int, deadline: float) -> tuple[bool, bytes, bytes, int]:
    """Read both pipes: (True if they ended within the limits, stdout, stderr, time of the first output)."""
    poll = select.poll()
    parts: dict[int, list[bytes]] = {out: [], err: []}
    for fd in parts:
        poll.register(fd, select.POLLIN)
    open_fds, total, first_ns = set(parts), 0, 0
    while open_fds and total <= MAX_OUTPUT_BYTES and (remaining_seconds := deadline - time.monotonic()) > 0:
        for fd, _ in poll.poll(remaining_seconds * 1000):
            data = os.read(fd, 1 << 16)
            if fd == out:
                first_ns = first_ns or time.monotonic_ns()
            total += len(data)
            parts[fd].append(data)
            if not data:
                poll.unregister(fd)
                open_fds.discard(fd)
    return not open_fds, b"".join(parts[out]), b"".join(parts[err]), first_ns or time.monotonic_ns()


def _complaint(output: bytes) -> str:
    lines = [line.strip() for line in text(output).splitlines() if line.strip()]
    if any("ermission" in line for line in lines):
        return _FORBIDDEN
    return f"py-spy failed: {(lines[-1] if lines else 'no output')[:200]}"
