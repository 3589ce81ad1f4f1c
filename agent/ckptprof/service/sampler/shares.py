"""Places shared by the users of a host: when there are none left, whoever has most gives way.

A user with thousands of sleeping processes must not make another user's save unseen. Processes that the kernel hides
from other users (prctl(2), PR_SET_DUMPABLE) count as root's, which gains them nothing: they give way to each other.
"""

from __future__ import annotations

from collections.abc import Iterable


class Shares:
    """Which process holds a place for which user; the newest of a user come last."""

    def __init__(self) -> None:
        """Start empty."""
        self._pids: dict[int, dict[int, None]] = {}
        self._users: dict[int, int] = {}

    def take(self, pid: int, uid: int) -> None:
        """Give a process a place."""
        self._users[pid] = uid
        self._pids.setdefault(uid, {})[pid] = None

    def give_back(self, pid: int) -> None:
        """Free the place of a process, if it has one."""
        uid = self._users.pop(pid, None)
        if uid is None:
            return
        mine = self._pids[uid]
        del mine[pid]
        if not mine:
            del self._pids[uid]

    def givers(self, uid: int) -> Iterable[int]:
        """Return the processes of whom one gives way to a newcomer of `uid`, newest first; none if it has its share."""
        if not self._pids:
            return ()
        most = max(self._pids, key=lambda user: len(self._pids[user]))
        if most == uid or len(self._pids[most]) <= len(self._pids.get(uid, ())) + 1:
            return ()
        return reversed(self._pids[most])
