"""Tells the service manager that the recorder makes progress, and tells a slow recorder from a dead one.

A crowded host may leave the recorder without a CPU for longer than the watchdog waits, and a long frame may take as
long to judge. Neither is a reason to kill it. So a thread of its own looks at a count of steps, and at where the time
went in which that stood still: waiting for a CPU does not count, computing counts a quarter, everything else counts
whole. If this thread does not come to its turn either, the process as a whole has stopped, and systemd ends it.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from ckptprof.service.commands.systemd import Notifier
from ckptprof_collectors.abandoned import JOIN_SECONDS

COMPUTING_SHARE = 0.25  # of a second on a CPU without a step: a frame of 100,000 files takes some
_BEATS = 10  # within the limit of the service manager, so that one late beat costs nothing
_MOST_SECONDS = 1.0  # between two beats
LEAST_SECONDS = 5.0  # of patience, however short the watchdog's is: a loop with nothing to do steps once a second

Times = dict[int, tuple[int, int]]  # thread: nanoseconds on a CPU, and waiting for one


class Pulse:
    """Feeds the watchdog as long as `step` is called often enough; without a watchdog it does nothing."""

    def __init__(
        self, notifier: Notifier, warn: Callable[[str], None], *, least_seconds: float = LEAST_SECONDS
    ) -> None:
        """Nothing runs before `start`; `warn` is told once where a dead loop stands."""
        self._least_seconds = least_seconds
        self._notifier = notifier
        self._warn = warn
        self._steps = 0
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._watched = 0

    def step(self) -> None:
        """Take note that the calling loop has done something."""
        self._steps += 1

    def start(self) -> None:
        """Watch the calling thread from now on; a second call does nothing."""
        if self._thread is None and self._notifier.watchdog_seconds is not None:
            self._watched = threading.get_ident()
            self._thread = threading.Thread(
                target=self._run, args=(self._notifier.watchdog_seconds,), name="pulse", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """Watch no longer; after that nothing more is told."""
        self._end.set()
        if self._thread is not None:
            self._thread.join(JOIN_SECONDS)

    def _run(self, limit_seconds: float) -> None:
        beat_seconds = min(limit_seconds / _BEATS, _MOST_SECONDS)
        seen, stood, times, at = self._steps, 0.0, thread_times(), time.monotonic()
        while not self._end.wait(beat_seconds):
            now, times_now, steps = time.monotonic(), thread_times(), self._steps
            # After Ctrl-Z or a pause of the machine the clock has run, nobody else has
            passed = min(now - at, 2 * beat_seconds)
            stood = 0.0 if steps != seen else stood + counted_seconds(passed, times, times_now)
            seen, times, at = steps, times_now, now
            if stood > max(limit_seconds, self._least_seconds):
                self._warn(f"the recorder makes no progress: it stands at {self._place()}")
                self._notifier.give_up()
                return
            self._notifier.watchdog()

    def _place(self) -> str:
        frame = sys._current_frames().get(self._watched)  # noqa: SLF001 - the documented way to another thread's stack
        if frame is None:
            return "its end"
        return f"{frame.f_code.co_name} ({Path(frame.f_code.co_filename).name}, line {frame.f_lineno})"


def counted_seconds(passed_seconds: float, before: Times, after: Times) -> float:
    """Return how much of the time between two looks at the threads speaks for a dead loop."""
    ran = waited = 0
    for thread, (running_ns, waiting_ns) in after.items():
        ran_before, waited_before = before.get(thread, (0, 0))
        ran += running_ns - ran_before
        waited += waiting_ns - waited_before
    computing = min(ran / 1e9, passed_seconds)
    idle = max(0.0, passed_seconds - computing - waited / 1e9)
    return idle + COMPUTING_SHARE * computing


def thread_times() -> Times:
    """Return the times of the threads of this process; of a kernel that does not count them nothing (schedstat)."""
    found: Times = {}
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError, ValueError):
            running_ns, waiting_ns, _ = map(int, (thread / "schedstat").read_bytes().split())
            found[int(thread.name)] = running_ns, waiting_ns
    return found
