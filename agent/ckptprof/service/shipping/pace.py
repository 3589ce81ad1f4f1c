"""When to send: spread over the nodes of a job, not beside a save, ever later while the server is away. Pure."""

from __future__ import annotations

import random

SPREAD_SECONDS = 120.0  # after something changed: a job of thousands of nodes ends a save on all of them at once
HEARTBEAT_SECONDS = 300.0  # without a change: that the node is watched
HOLD_SECONDS = 3600.0  # at most, for saves that follow each other without a pause
FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 900.0
_DOUBLINGS = 10  # until the longest


class Pace:
    """All times are CLOCK_MONOTONIC, in seconds."""

    def __init__(self, now: float, dice: random.Random) -> None:
        """Begin as if something had changed: what there is was perhaps never sent."""
        self._dice = dice
        self._failures = 0
        self._is_changed = True
        self._due = now + dice.uniform(0, SPREAD_SECONDS)
        self._held_since: float | None = None

    def changed(self, now: float) -> None:
        """Take note that there is something to send; what is waited for already stays when it was."""
        if not self._is_changed:
            self._is_changed = True
            if not self._failures:
                self._due = min(self._due, now + self._dice.uniform(0, SPREAD_SECONDS))

    def is_due(self, now: float) -> bool:
        """Return whether it is time to send, if nothing is being written."""
        return now >= self._due

    def may_send(self, now: float, *, is_writing: bool) -> bool:
        """Return whether what is due may be sent beside what is going on."""
        if not is_writing:
            self._held_since = None
            return True
        self._held_since = now if self._held_since is None else self._held_since
        return now - self._held_since >= HOLD_SECONDS

    def sent(self, now: float) -> None:
        """Take note that all was sent."""
        self._failures, self._is_changed, self._held_since = 0, False, None
        self._due = now + HEARTBEAT_SECONDS * self._dice.uniform(0.8, 1.2)

    def failed(self, now: float, at_least: float = 0.0) -> None:
        """Take note that it was not; `at_least`: for so long the server is not to be asked."""
        most = min(LONGEST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2 ** min(self._failures, _DOUBLINGS))
        self._failures += 1
        self._due = now + min(at_least, LONGEST_RETRY_SECONDS) + self._dice.uniform(0, most)
