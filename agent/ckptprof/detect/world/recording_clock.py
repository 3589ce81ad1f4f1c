"""Conversion between CLOCK_MONOTONIC, which measures durations, and the wall clock, which may be set at any time."""

from __future__ import annotations

import sys
from collections import deque
from typing import NamedTuple

import msgspec

from ckptprof import model
from ckptprof.detect.tolerances import MAX_PER_ITEM, POLL_INTERVAL_NS, STAMP_TOLERANCE_NS
from ckptprof_collectors.samples import ClockSample, FileFact

_DRIFT = 500e-6  # maximum of an uncorrected clock, as the kernel assumes (MAXFREQ)


class _ClockSetting(NamedTuple):
    """A period in which the wall clock ran normally; the next one starts when it was set."""

    since_ns: int  # CLOCK_MONOTONIC: earliest start
    until_ns: int  # latest end
    set_by_ns: int  # how far it was ahead of the steady clock


class RecordingClock:
    """Converts between CLOCK_MONOTONIC and a steady wall clock: that of the first frame, never set again.

    A slewed clock (NTP) is followed, a jump is not: time stamps of files are converted to the steady clock when they
    arrive (`unset_stamps`), so that stamps before and after a jump can be compared.
    """

    def __init__(self, at_ns: int, wall_ns: int) -> None:
        self._offset_ns = wall_ns - at_ns
        self._at_ns = at_ns
        self._since_ns = -sys.maxsize  # earliest time of the last setting; files are older than a boot
        self._set_by_ns = 0
        self._earlier_settings: deque[_ClockSetting] = deque(maxlen=MAX_PER_ITEM)
        self._kernel_state: tuple[int, ClockSample] | None = None  # when the kernel reported its state, and that state

    def update(self, at_ns: int, wall_ns: int) -> None:
        """Update both clocks from a frame."""
        shift_ns = wall_ns - at_ns - self._offset_ns - self._set_by_ns
        if abs(shift_ns) > STAMP_TOLERANCE_NS:
            self._earlier_settings.append(_ClockSetting(self._since_ns, at_ns, self._set_by_ns))
            self._since_ns = self._at_ns
            self._set_by_ns += shift_ns
        else:
            self._offset_ns += shift_ns
        self._at_ns = at_ns

    def record_kernel_state(self, at_ns: int, sample: ClockSample) -> None:
        """Record the state of the clock that the kernel reports."""
        self._kernel_state = at_ns, sample

    @property
    def state(self) -> model.Clock | None:
        """Its maximum error now; None: unknown."""
        if self._kernel_state is None:
            return None
        at_ns, sample = self._kernel_state
        if not sample.synchronised or sample.max_error_us is None:
            return model.Clock(synchronised=sample.synchronised, bound_ns=None)
        bound_ns = sample.max_error_us * 1000 + int(_DRIFT * (self._at_ns - at_ns))
        return model.Clock(synchronised=True, bound_ns=bound_ns)

    def mono(self, stamp_ns: int) -> int:
        """Monotonic time of a stamp of the steady clock."""
        return stamp_ns - self._offset_ns

    def stamp(self, mono_ns: int) -> int:
        """Stamp that a file gets at a monotonic time, by the steady clock."""
        return mono_ns + self._offset_ns

    def wall(self, mono_ns: int) -> int:
        """Wall time of a monotonic time, by the clock as it is set now."""
        return mono_ns + self._offset_ns + self._set_by_ns

    def unset_stamps(self, fact: FileFact) -> FileFact:
        """Convert the stamps of a file to the steady clock; they must not be later than the last frame.

        After the clock was set back, an hour occurs twice: a stamp in it counts for the second one once that has
        passed.
        """
        if not self._earlier_settings:
            return fact
        return msgspec.structs.replace(
            fact,
            birth_ns=None if fact.birth_ns is None else self._unset_stamp(fact.birth_ns),
            modified_ns=self._unset_stamp(fact.modified_ns),
            changed_ns=self._unset_stamp(fact.changed_ns),
        )

    def _unset_stamp(self, wall_ns: int) -> int:
        now = _ClockSetting(
            self._since_ns, self._at_ns + POLL_INTERVAL_NS, self._set_by_ns
        )  # a frame is read after its time
        for setting in (now, *reversed(self._earlier_settings)):
            stamp_ns = wall_ns - setting.set_by_ns
            if setting.since_ns - STAMP_TOLERANCE_NS <= self.mono(stamp_ns) <= setting.until_ns + STAMP_TOLERANCE_NS:
                return stamp_ns
        return wall_ns - self._set_by_ns
