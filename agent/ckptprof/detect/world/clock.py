"""Converts between CLOCK_MONOTONIC, which durations are measured by, and the wall clock."""

from __future__ import annotations


class Clock:
    """Converts between the wall and the monotonic clock, as of the latest frame."""

    def __init__(self) -> None:
        """Start unset."""
        self.offset_ns = 0

    def set(self, at_ns: int, wall_ns: int) -> None:
        """Take the two clocks of one frame."""
        self.offset_ns = wall_ns - at_ns

    def mono(self, wall_ns: int) -> int:
        """Return the monotonic time of a wall time."""
        return wall_ns - self.offset_ns

    def wall(self, mono_ns: int) -> int:
        """Return the wall time of a monotonic time."""
        return mono_ns + self.offset_ns
