"""Children and threads that do not end: left behind, counted, and bounded in number.

A call to a file system or a driver that does not answer ignores SIGKILL (state D), so a wait for its caller may never
end. Each wait here has a timeout; children and threads that have not ended by then go onto this list, which is polled
without waiting. While `MAX_PER_KIND` of one kind are on it, no more work of that kind starts.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from resource import struct_rusage
from typing import NamedTuple, TypeVar

from ckptprof_collectors.privileges import RAISED

T = TypeVar("T")

MAX_PER_KIND = 4
JOIN_SECONDS = 5.0  # for a thread to end after a request
END_SECONDS = 0.5  # for a killed child to end
_FUSE = b"request_wait_answer"  # fs/fuse/dev.c


class _AbandonedWork(NamedTuple):
    kind: str
    user: int
    has_ended: Callable[[], bool]


class AbandonedWork:
    """Children and threads that did not end in time; any thread may call any method, and none waits."""

    def __init__(self) -> None:
        self._entries: list[_AbandonedWork] = []
        self._lock = threading.Lock()

    def add(self, kind: str, has_ended: Callable[[], bool], *, user: int = 0) -> None:
        """Add work of a kind, caused by a process of `user`; `has_ended` is polled and never waits."""
        with self._lock:
            self._entries.append(_AbandonedWork(kind, user, has_ended))

    def remove_ended(self) -> None:
        """Drop the work that has ended."""
        if self._entries:
            with self._lock:
                self._entries = [one for one in self._entries if not one.has_ended()]

    def count(self, kind: str | None = None, *, user: int | None = None) -> int:
        """Count the work that has not ended: all, of a kind, or of a user."""
        return sum(kind in (None, one.kind) and user in (None, one.user) for one in self._entries)

    def is_full(self, kind: str) -> bool:
        return self.count(kind) >= MAX_PER_KIND


ABANDONED = AbandonedWork()  # of this process: children and threads are the process's


def wait_child(pid: int, seconds: float) -> tuple[int, struct_rusage] | None:
    """Wait for a child: its status and resource usage; None after the timeout."""
    deadline, pause = time.monotonic() + seconds, 0.0005
    while True:
        ended, status, usage = os.wait4(pid, os.WNOHANG)
        if ended:
            return status, usage
        if (remaining_seconds := deadline - time.monotonic()) <= 0:
            return None
        time.sleep(min(pause, remaining_seconds))
        pause = min(2 * pause, 0.05)


def reap(pid: int) -> bool:
    """Test whether a child has ended; it is reaped. Never waits."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True


def uninterruptible_sleep(task: int) -> bytes | None:
    """Identify this uninterruptible sleep (state D) of a process or thread; None: not in one.

    FUSE waits interruptibly until its server has read the request, and counts as well.
    """
    with contextlib.suppress(OSError, IndexError):
        state = _read(task, "stat").rpartition(b")")[2].split(None, 1)[0]
        if state == b"D" or (state == b"S" and _read(task, "wchan") == _FUSE):
            return _read(task, "schedstat")
    return None


def _read(task: int, name: str) -> bytes:
    with RAISED, open(f"/proc/{task}/{name}", "rb", buffering=0) as file:  # it may be hidden, or have capabilities
        return file.read(1024)


def run_program(command: Sequence[str], *, timeout_seconds: float) -> subprocess.CompletedProcess[str]:
    """Run a program and return what it printed; raises OSError, and subprocess.TimeoutExpired.

    `subprocess.run` would kill it after that time and then wait for its end without a bound.
    """
    process = subprocess.Popen(  # noqa: S603 - an argument list of ours, and no shell
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
    )
    try:
        out, err = process.communicate(timeout=timeout_seconds)
    except BaseException:
        process.kill()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            ABANDONED.add(command[0], lambda: process.poll() is not None)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def call_with_timeout(kind: str, work: Callable[[], T], seconds: float) -> T:
    """Call `work` in a thread of its own; return or raise what it does.

    Raises TimeoutError if it takes longer, and at once while too much of this kind hangs.
    """
    if ABANDONED.is_full(kind):
        raise TimeoutError
    results, errors = list[T](), list[Exception]()

    def do() -> None:
        try:
            results.append(work())
        except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
            errors.append(error)

    thread = threading.Thread(target=do, name=kind, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        ABANDONED.add(kind, lambda: not thread.is_alive())
        raise TimeoutError
    return results[0]
