"""Processes that block the readers of their files in /proc, and are not read for that time.

Such a read waits for two locks of the process (`exec_update_lock` and `mmap_lock`; fs/proc/base.c), which a process can
hold for ever: it calls exec(2) with a file open whose server, its own, does not answer the close. The read has no
timeout, and only a fatal signal to the reader ends it. So the reader's thread is left behind, and another one continues
without that process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ckptprof_collectors.privileges import RAISED

MAX_PER_USER = 2  # blocking processes of one user: then no process of that user is read
MAX_REFUSED_SECONDS = 3600.0
_RANGE_BITS = 16  # user namespaces have ranges of so many ids, all of one user
_ALL_IDS = b"4294967295"


class _BlockedRead(NamedTuple):
    user: int
    has_returned: Callable[[], bool]
    counts: int


class BlockingProcesses:
    """The processes that must not be read; any thread may call any method, and none waits."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = os.fsencode(proc)
        self._blocked: dict[int, _BlockedRead] = {}
        self._refused: dict[int, int] = {}  # user -> until when
        self._previous_refusals: dict[int, tuple[float, int]] = {}  # user -> duration of the last refusal, and its end
        self.reading = 0  # the process that the sampler's loop reads now; 0: none
        self.changes = 0  # of the set of processes to be read

    def add(self, pid: int, has_returned: Callable[[], bool], *, counts: int = 1) -> None:
        """Stop reading a process until `has_returned`; it `counts` as so many of its user's."""
        self._blocked[pid] = _BlockedRead(self.user_of(pid), has_returned, counts)
        self.changes += 1

    def refuse(self, user: int, seconds: float) -> None:
        """Stop reading a user's processes for a while, twice as long if refused recently; never root's."""
        if user:
            now_ns = time.monotonic_ns()
            previous_seconds, until_ns = self._previous_refusals.get(user, (0.0, 0))
            if now_ns - until_ns < previous_seconds * 1e9:
                seconds = max(seconds, min(2 * previous_seconds, MAX_REFUSED_SECONDS))
            self._refused[user] = now_ns + int(seconds * 1e9)
            self._previous_refusals[user] = seconds, self._refused[user]
            self.changes += 1

    def __contains__(self, pid: int) -> bool:
        if not self._blocked and not self._refused:
            return False
        return pid in self._blocked or self.user_of(pid) in self.refused_users()

    def __len__(self) -> int:
        return len(self._blocked)

    def refused_users(self) -> set[int]:
        """Users none of whose processes are read."""
        blocked = list(self._blocked.values())
        users = {one.user for one in blocked if one.user}
        many = {user for user in users if sum(one.counts for one in blocked if one.user == user) >= MAX_PER_USER}
        return many | set(self._refused)

    def affected_users(self) -> list[int]:
        """Users some of whose processes are not read."""
        return sorted({one.user for one in list(self._blocked.values())} | set(self._refused))

    def remove_ended(self) -> None:
        """Allow reads of processes that no longer block."""
        now_ns = time.monotonic_ns()
        for pid, one in list(self._blocked.items()):
            if one.has_returned():
                self._blocked.pop(pid, None)
                self.changes += 1
        for user, until_ns in list(self._refused.items()):
            if now_ns > until_ns:
                self._refused.pop(user, None)
                self.changes += 1

    def user_of(self, pid: int) -> int:
        """User of a process, 0 if it has ended; negative for all ids of one range of a user namespace.

        The owner of the folder needs no lock, and is right also for a process that is not dumpable.
        """
        folder = self._proc + b"/%d" % pid
        try:
            with RAISED:  # or the process may be hidden
                uid = os.stat(folder).st_uid
                if uid >> _RANGE_BITS:
                    with open(folder + b"/uid_map", "rb", buffering=0) as file:
                        if _ALL_IDS not in file.read(4096):
                            return -(uid >> _RANGE_BITS)
        except OSError:
            return 0
        return uid


BLOCKING_PROCESSES = BlockingProcesses()  # one for this process, as its threads are blocked
