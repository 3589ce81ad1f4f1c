"""The thread of the loop in the real-time class, so that its ticks come in time beside whatever keeps the CPUs busy.

A look that comes late misses what it exists to see. Beside three busy loops on two cores the 99th percentile of the
lateness is 9 ms, and single ticks come 0.4 s late, in the ordinary class; in this one it is 1.1 ms, and 1.5 ms at most.
It takes no more CPU for that. Threads and children that it starts are ordinary ones. If a tick computes for long, the
kernel sends SIGXCPU (RLIMIT_RTTIME, setrlimit(2)), and the thread is an ordinary one for a while, so that no fault of
ours takes the CPU from those who train.
"""

from __future__ import annotations

import os
import resource
import signal
import threading
from contextlib import suppress

from ckptprof_collectors.privileges import RAISED

LONGEST_US = 100_000  # of CPU time without a sleep
ORDINARY_SECONDS = 10.0  # so long after it took longer it is an ordinary thread
_LEAST_PRIORITY = 1


class Punctual:
    """Puts the thread that runs the loop into the real-time class, where the host allows that (LimitRTPRIO=, root)."""

    def __init__(self) -> None:
        """Bound what it may take at once; to be made by the main thread, which takes signals."""
        self._thread = 0
        self._allowed = True
        signal.signal(signal.SIGXCPU, self._took_long)
        hard = resource.getrlimit(resource.RLIMIT_RTTIME)[1]
        try:
            resource.setrlimit(resource.RLIMIT_RTTIME, (LONGEST_US, hard))
        except (OSError, ValueError):  # without the bound it does not take what it could not give back
            self._allowed = False

    def run(self) -> None:
        """Have the calling thread be the one that runs the loop, from now on."""
        self._thread = threading.get_native_id()
        self._enter()

    def _enter(self) -> None:
        RAISED.lower()  # a timer's thread begins as the loop was when it was set
        if self._allowed:
            try:
                policy = os.SCHED_RR | os.SCHED_RESET_ON_FORK
                os.sched_setscheduler(self._thread, policy, os.sched_param(_LEAST_PRIORITY))
            except OSError:  # not allowed here
                self._allowed = False

    def _took_long(self, *_: object) -> None:
        with suppress(OSError):  # it has ended
            os.sched_setscheduler(self._thread, os.SCHED_OTHER, os.sched_param(0))
        again = threading.Timer(ORDINARY_SECONDS, self._enter)
        again.daemon = True
        again.start()
