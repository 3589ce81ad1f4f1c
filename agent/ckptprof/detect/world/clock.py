"""Converts between CLOCK_MONOTONIC, which durations are measured by, and the wall clock, which anyone may set."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import msgspec

from ckptprof import model
from ckptprof.detect.tolerances import LOOK_NS, MAX_EACH, STAMP_NS
from ckptprof_collectors.samples import ClockSample, FileFact

_LONG_AGO_NS = -(1 << 62)  # files are older than a boot
_DRIFT = 500e-6  # of a clock that nobody corrects, at most, as the kernel reckons (MAXFREQ)


class _Setting(NamedTuple):
    """A time in which the wall clock went on as it should; the next one began when it was set."""

    since_ns: int  # CLOCK_MONOTONIC: at the earliest
    until_ns: int  # at the latest
    set_by_ns: int  # by how much it was then ahead of a clock that had never been set


class Clock:
    """Converts between the monotonic clock and a wall clock that is never set: it begins as that of the first frame.

    A clock that is slewed, as by NTP, is followed. One that jumps is not: what files are stamped with is changed to the
    clock that is never set when it comes in (`steady`), so that stamps of before and after a jump can be compared.
    """

    def __init__(self, at_ns: int, wall_ns: int) -> None:
        self._offset_ns = wall_ns - at_ns
        self._at_ns = at_ns
        self._since_ns = _LONG_AGO_NS  # when it was last set, at the earliest
        self._set_by_ns = 0
        self._before: deque[_Setting] = deque(maxlen=MAX_EACH)
        self._told: tuple[int, ClockSample] | None = None  # how far it may be off, and when that was said

    def set(self, at_ns: int, wall_ns: int) -> None:
        """Take the two clocks of one frame."""
        moved_ns = wall_ns - at_ns - self._offset_ns - self._set_by_ns
        if abs(moved_ns) > STAMP_NS:
            self._before.append(_Setting(self._since_ns, at_ns, self._set_by_ns))
            self._since_ns = self._at_ns
            self._set_by_ns += moved_ns
        else:
            self._offset_ns += moved_ns
        self._at_ns = at_ns

    def note(self, at_ns: int, sample: ClockSample) -> None:
        """Take what the kernel says of it."""
        self._told = at_ns, sample

    @property
    def state(self) -> model.Clock | None:
        """How far it may be off now; None: not told."""
        if self._told is None:
            return None
        at_ns, sample = self._told
        if not sample.synchronised or sample.max_error_us is None:
            return model.Clock(synchronised=sample.synchronised, bound_ns=None)
        bound_ns = sample.max_error_us * 1000 + int(_DRIFT * (self._at_ns - at_ns))
        return model.Clock(synchronised=True, bound_ns=bound_ns)

    def mono(self, stamp_ns: int) -> int:
        """Return the monotonic time of a stamp."""
        return stamp_ns - self._offset_ns

    def stamp(self, mono_ns: int) -> int:
        """Return the stamp that a file gets at a monotonic time."""
        return mono_ns + self._offset_ns

    def wall(self, mono_ns: int) -> int:
        """Return what the wall clock, as it is set now, calls a monotonic time."""
        return mono_ns + self._offset_ns + self._set_by_ns

    def steady(self, fact: FileFact) -> FileFact:
        """Return what is said of a file, as if the clock had never been set; only stamps of before its look are known.

        After it was set back, an hour comes twice: a stamp of it is of the second one once that is over.
        """
        if not self._before:
            return fact
        return msgspec.structs.replace(
            fact,
            birth_ns=None if fact.birth_ns is None else self._steadied(fact.birth_ns),
            modified_ns=self._steadied(fact.modified_ns),
            changed_ns=self._steadied(fact.changed_ns),
        )

    def _steadied(self, wall_ns: int) -> int:
        now = _Setting(self._since_ns, self._at_ns + LOOK_NS, self._set_by_ns)  # a frame is read after its time
        for setting in (now, *reversed(self._before)):
            stamp_ns = wall_ns - setting.set_by_ns
            if setting.since_ns - STAMP_NS <= self.mono(stamp_ns) <= setting.until_ns + STAMP_NS:
                return stamp_ns
        return wall_ns - self._set_by_ns
