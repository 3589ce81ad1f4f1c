"""Shares of a core for kinds of work, and places shared by the users of a host: pure, no clock.

When no place is left, the user with the most processes loses one: thousands of sleeping processes of one user must not
hide another user's save.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator


class CpuAllowance:
    """A budget of CPU time that refills at `share` of a core; an overdraft must refill before more is spent."""

    __slots__ = ("_left_ns", "_paid_ns", "_saved_ns", "_share", "refused")

    def __init__(self, share: float, saved_ns: int) -> None:
        self._share, self._saved_ns = share, saved_ns
        self._left_ns, self._paid_ns = saved_ns, 0
        self.refused = 0  # work that was due and not done, counted by those who did not do it

    def left_ns(self, now_ns: int) -> int:
        """Return how much CPU time may be spent now; zero or less: none."""
        self._left_ns = min(self._saved_ns, self._left_ns + int((now_ns - self._paid_ns) * self._share))
        self._paid_ns = now_ns
        return self._left_ns

    def spend(self, spent_ns: int) -> None:
        """Record spent CPU time."""
        self._left_ns -= spent_ns

    def drain(self, now_ns: int, pause_ns: int) -> None:
        """Leave nothing for a while."""
        self._left_ns = min(self.left_ns(now_ns), -int(pause_ns * self._share))


class UserPlaces:
    """Processes that have a place, by user; the newest of a user last."""

    def __init__(self) -> None:
        self._pids: OrderedDict[int, OrderedDict[int, None]] = OrderedDict()
        self._users: dict[int, int] = {}

    def add(self, pid: int, uid: int) -> None:
        """Give a process a place."""
        self._users[pid] = uid
        self._pids.setdefault(uid, OrderedDict())[pid] = None

    def remove(self, pid: int) -> None:
        """Free the place of a process, if it has one."""
        uid = self._users.pop(pid, None)
        if uid is None:
            return
        mine = self._pids[uid]
        del mine[pid]
        if not mine:
            del self._pids[uid]

    def candidates_to_evict(self, uid: int) -> Iterable[int]:
        """Return the processes, newest first, of which one loses its place to `uid`; none if `uid` has its share."""
        if not self._pids:
            return ()
        largest_user = max(self._pids, key=lambda user: len(self._pids[user]))
        if largest_user == uid or len(self._pids[largest_user]) <= len(self._pids.get(uid, ())) + 1:
            return ()
        return reversed(self._pids[largest_user])


class UserTurns(UserPlaces):
    """Processes in turn: users alternate, and of each user the process that waited longest comes first."""

    def in_turn(self) -> Iterator[int]:
        """Yield each process once; a yielded one goes to the end, so that the next call continues from there."""
        remaining = {uid: len(pids) for uid, pids in self._pids.items()}
        while remaining:
            for uid in tuple(remaining):
                pids = self._pids.get(uid)
                if not pids or not remaining[uid]:
                    del remaining[uid]
                    continue
                remaining[uid] -= 1
                self._pids.move_to_end(uid)
                pid = next(iter(pids))
                pids.move_to_end(pid)
                yield pid
