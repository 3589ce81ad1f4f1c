"""A share of a core that one kind of work may take, with a little saved for when much comes at once: pure, no clock."""

from __future__ import annotations


class Allowance:
    """What may be spent now; whoever spends more than is left pays it back by a pause."""

    __slots__ = ("_left_ns", "_paid_ns", "_saved_ns", "_share")

    def __init__(self, share: float, saved_ns: int) -> None:
        """Start with all that can be saved."""
        self._share, self._saved_ns = share, saved_ns
        self._left_ns, self._paid_ns = saved_ns, 0

    def left_ns(self, now_ns: int) -> int:
        """Return how much CPU time may be spent now; none if it is not above zero."""
        self._left_ns = min(self._saved_ns, self._left_ns + int((now_ns - self._paid_ns) * self._share))
        self._paid_ns = now_ns
        return self._left_ns

    def spend(self, spent_ns: int) -> None:
        """Take note of CPU time that was spent."""
        self._left_ns -= spent_ns
