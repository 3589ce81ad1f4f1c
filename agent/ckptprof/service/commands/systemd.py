"""systemd's notify protocol (sd_notify(3), sd_watchdog_enabled(3)), by hand: it is one datagram.

Without NOTIFY_SOCKET every method does nothing, so that the agent runs the same in a terminal.

`WatchdogFeeder` feeds the watchdog, and distinguishes a slow recorder from a dead one. On a loaded host the recorder
may wait for a CPU longer than the watchdog allows, and a long frame may take as long to process. Neither is a reason to
kill it. So a separate thread polls a count of steps, and divides the time without a step: waiting for a CPU does not
count, computing counts a quarter, everything else counts in full. If this thread does not run either, the whole process
has stopped, and systemd ends it.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from ckptprof_collectors.abandoned import JOIN_SECONDS

MAX_STATUS_CHARS = 512
COMPUTING_SHARE = 0.25  # of a second on a CPU without a step: a frame of 100,000 files takes some
_BEATS_PER_LIMIT = 10  # within the limit of the service manager, so that one late beat costs nothing
_MAX_BEAT_SECONDS = 1.0  # between two beats
MIN_LIMIT_SECONDS = 5.0  # for any shorter limit of the watchdog: an idle loop steps once a second
ThreadTimes = dict[int, tuple[int, int]]  # thread: nanoseconds on a CPU, and waiting for one


class Notifier:
    """Sends states to the service manager."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        """Read NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID; the socket is opened for each message."""
        environ = os.environ if environ is None else environ
        address = environ.get("NOTIFY_SOCKET", "")  # vsock: and others are for virtual machines
        self._address: str | bytes | None = address if address.startswith("/") else None
        if address.startswith("@"):  # abstract: the kernel wants a NUL in its place
            self._address = b"\0" + os.fsencode(address[1:])
        self.is_active = self._address is not None  # a service manager listens
        self.watchdog_seconds = _watchdog_seconds(environ) if self.is_active else None
        self._next_beat = 0.0
        self._status: tuple[str, ...] = ()

    def ready(self, status: str = "") -> bool:
        """Report that the service has started; return whether it was sent."""
        return self._send("READY=1", *self._status_line(status))

    def status(self, text: str) -> bool:
        """Show one line in `systemctl status`; the same line is sent once."""
        line = self._status_line(text)
        if not line or line == self._status:
            return False
        was_sent = self._send(*line)
        self._status = line if was_sent else ()
        return was_sent

    def stopping(self, status: str = "") -> bool:
        """Report that the service is ending."""
        return self._send("STOPPING=1", *self._status_line(status))

    def watchdog(self) -> bool:
        """Report that the loop is alive; call it each turn, it is sent once a third of the limit."""
        if self.watchdog_seconds is None:
            return False
        now = time.monotonic()
        if now < self._next_beat:
            return False
        self._next_beat = now + self.watchdog_seconds / 3
        return self._send("WATCHDOG=1")

    def trigger_watchdog(self) -> bool:
        """Trigger the watchdog now."""
        return self._send("WATCHDOG=trigger")

    @staticmethod
    def _status_line(text: str) -> tuple[str, ...]:
        # A newline would start a new assignment: a process name in a status must not inject MAINPID=1.
        line = "".join(char if char.isprintable() else " " for char in text[:MAX_STATUS_CHARS])
        return (f"STATUS={line}",) if line else ()

    def _send(self, *assignments: str) -> bool:
        if self._address is None:
            return False
        message = "\n".join(assignments).encode("utf-8", "replace")
        try:
            # One socket per message: a service manager that was re-executed has a new one at the same address.
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.settimeout(1)
                sock.sendto(message, self._address)
        except OSError:  # no listener any more: the service continues without
            return False
        return True


def _watchdog_seconds(environ: Mapping[str, str]) -> float | None:
    """Return the limit, None if it is not for this process (WATCHDOG_PID)."""
    pid = environ.get("WATCHDOG_PID", "")
    limit = environ.get("WATCHDOG_USEC", "")
    if re.fullmatch(r"0*[1-9][0-9]{0,17}", limit) is None or (pid and pid != str(os.getpid())):
        return None
    return int(limit) * 1e-6


class WatchdogFeeder:
    """Feeds the watchdog while `step` is called often enough; without a watchdog it does nothing."""

    def __init__(
        self, notifier: Notifier, warn: Callable[[str], None], *, min_limit_seconds: float = MIN_LIMIT_SECONDS
    ) -> None:
        """`warn` gets one line with the position of a dead loop."""
        self._min_limit_seconds = min_limit_seconds
        self._notifier = notifier
        self._warn = warn
        self._steps = 0
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._watched_thread = 0

    def step(self) -> None:
        """Record progress of the calling loop."""
        self._steps += 1

    def start(self) -> None:
        """Watch the calling thread; a second call does nothing."""
        if self._thread is None and self._notifier.watchdog_seconds is not None:
            self._watched_thread = threading.get_ident()
            self._thread = threading.Thread(
                target=self._run, args=(self._notifier.watchdog_seconds,), name="pulse", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """Stop watching."""
        self._end.set()
        if self._thread is not None:
            self._thread.join(JOIN_SECONDS)

    def _run(self, limit_seconds: float) -> None:
        beat_seconds = min(limit_seconds / _BEATS_PER_LIMIT, _MAX_BEAT_SECONDS)
        known_steps, idle_seconds, times, at = self._steps, 0.0, thread_times(), time.monotonic()
        while not self._end.wait(beat_seconds):
            now, times_now, steps = time.monotonic(), thread_times(), self._steps
            # After Ctrl-Z or a pause of the machine only the clock has advanced
            passed = min(now - at, 2 * beat_seconds)
            idle_seconds = 0.0 if steps != known_steps else idle_seconds + stalled_seconds(passed, times, times_now)
            known_steps, times, at = steps, times_now, now
            if idle_seconds > max(limit_seconds, self._min_limit_seconds):
                self._warn(f"the recorder makes no progress: stuck in {self._stack_position()}")
                self._notifier.trigger_watchdog()
                return
            self._notifier.watchdog()

    def _stack_position(self) -> str:
        frame = sys._current_frames().get(self._watched_thread)  # noqa: SLF001 - the documented way to another thread's stack
        if frame is None:
            return "its end"
        return f"{frame.f_code.co_name} ({Path(frame.f_code.co_filename).name}, line {frame.f_lineno})"


def stalled_seconds(passed_seconds: float, before: ThreadTimes, after: ThreadTimes) -> float:
    """Return the seconds between two samples of thread times that are evidence of a dead loop."""
    ran = waited = 0
    for thread, (running_ns, waiting_ns) in after.items():
        ran_before, waited_before = before.get(thread, (0, 0))
        ran += running_ns - ran_before
        waited += waiting_ns - waited_before
    computing = min(ran / 1e9, passed_seconds)
    idle = max(0.0, passed_seconds - computing - waited / 1e9)
    return idle + COMPUTING_SHARE * computing


def thread_times() -> ThreadTimes:
    """Return the times of the threads of this process; empty if the kernel does not count them (schedstat)."""
    found: ThreadTimes = {}
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError, ValueError):
            running_ns, waiting_ns, _ = map(int, (thread / "schedstat").read_bytes().split())
            found[int(thread.name)] = running_ns, waiting_ns
    return found
