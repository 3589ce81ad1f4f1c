"""What goes on, by the best means there is: the agent's word, else its database."""

from __future__ import annotations

import fnmatch

import msgspec

from ckptprof.model import Checkpoint
from ckptprof.report.live.state import State, with_usual
from ckptprof.service.live.client import Listener, listen
from ckptprof.service.live.following import Follower

SILENT_NS = 5_000_000_000
OTHER = "the agent is of another version: this follows its database, devices are up to a minute old"
SILENT = "the agent has not answered for a while: what goes on is as it was then"


class Watching:
    """Asked for the state once in a while, by one who may go at any time."""

    def __init__(self, follower: Follower, *, job: str | None = None) -> None:
        """`job`: only what goes on of such jobs."""
        self._follower = follower
        self._job = job
        self._listener: Listener | None = None
        self._is_other = False
        self._try()

    def close(self) -> None:
        """Hang up."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    @property
    def is_told(self) -> bool:
        """Whether the agent has told something, or there is none."""
        if self._listener is None:
            return True
        self._take()
        return self._listener is None or self._listener.newest is not None

    @property
    def told_by(self) -> tuple[int, ...]:
        """The descriptor that can be read when the agent has told more; none without it."""
        return () if self._listener is None else (self._listener.fileno(),)

    def state(self, now_ns: int) -> State:
        """Return what goes on; raises StoreError."""
        self._take()
        told = self._listener.newest if self._listener is not None else None
        if told is None:
            state = self._follower.state(now_ns)
            if self._is_other:
                state = msgspec.structs.replace(state, notes=(OTHER,))
        else:
            last = self._follower.last()
            is_old = now_ns - told.at_ns > SILENT_NS
            state = msgspec.structs.replace(
                told, underway=with_usual(told.underway, last), last=last, notes=(SILENT,) if is_old else ()
            )
        if self._job is None:
            return state
        mine = tuple(one for one in state.underway if fnmatch.fnmatchcase(one.job, self._job))
        return msgspec.structs.replace(state, underway=mine)

    def checkpoint(self, one: Checkpoint) -> Checkpoint | None:
        """Return all that is known of a checkpoint; None if it is not kept any more. Raises StoreError."""
        return self._follower.checkpoint(one)

    def _take(self) -> None:
        if self._listener is None:
            self._try()
        if self._listener is not None and not self._listener.take():
            self._is_other = self._listener.is_other
            self.close()

    def _try(self) -> None:
        if not self._is_other:
            self._listener = listen(self._follower.path)
