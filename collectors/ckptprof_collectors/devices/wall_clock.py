"""Error bound of the wall clock, by the kernel (adjtimex(2) with no mode: nothing is set).

The time daemon sets a maximum error in the kernel, which adds 500 us each second (`second_overflow` in
kernel/time/ntp.c) until the next setting. chrony and ntpd estimate it, and an expected error as well.
systemd-timesyncd and phc2sys only set it to 0 to mark the clock as synchronised: that is no bound.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import time
from collections.abc import Callable, Sequence

from ckptprof_collectors.kernelfs import KernelFs, UnavailableError
from ckptprof_collectors.samples import ClockSample, Sample

SAMPLE_INTERVAL_SECONDS = 10.0
# Not by libc, which calls clock_adjtime(2): seccomp filters of containers allow only this one
SYSCALL_NUMBERS = {"x86_64": 159, "aarch64": 171, "riscv64": 171}
_UNSYNCHRONISED = 0x40  # STA_UNSYNC
_NANOSECONDS = 0x2000  # STA_NANO: the offset is in these, else in microseconds
_PHASE_LIMIT_US = 16_000_000  # NTP_PHASE_LIMIT: no error was set yet
_TIMEX_BYTES = 256  # struct timex has 208
_HEAD = struct.Struct("@Illlli")  # modes, offset, freq, maxerror, esterror, status: include/uapi/linux/timex.h


Timex = tuple[int, int, int, int]  # offset, maximum and expected error in microseconds, status


def query_kernel() -> Timex:
    """Query adjtimex(2); raises OSError."""
    number = SYSCALL_NUMBERS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    timex = ctypes.create_string_buffer(_TIMEX_BYTES)
    if ctypes.CDLL(None, use_errno=True).syscall(number, timex) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    _modes, offset, _freq, maxerror, esterror, status = _HEAD.unpack_from(timex)
    return offset, maxerror, esterror, status


class WallClock:
    """Reports the error bound of the wall clock when it changed."""

    name = "clock"

    def __init__(
        self,
        fs: KernelFs,
        *,
        clock: Callable[[], float] = time.monotonic,
        query: Callable[[], Timex] | None = None,
    ) -> None:
        """Query it once; raises UnavailableError."""
        if query is None and not fs.is_live:
            raise UnavailableError("the clock is read by a system call, not from files")
        self._query = query or query_kernel
        self._clock = clock
        self._next = 0.0
        self._previous: ClockSample | None = None
        try:
            self._query()
        except OSError as error:
            raise UnavailableError(f"adjtimex(2): {error.strerror}") from error

    def read(self) -> Sequence[Sample] | None:
        """Sample the clock; None: too early. Raises OSError."""
        now = self._clock()
        if now < self._next:
            return None
        self._next = now + SAMPLE_INTERVAL_SECONDS
        offset, max_error_us, expected_error_us, status = self._query()
        bound_us = None
        if 0 < expected_error_us < _PHASE_LIMIT_US:  # else there is no estimate of the error
            offset_us = -(-abs(offset) // 1000) if status & _NANOSECONDS else abs(offset)  # not yet corrected
            bound_us = max_error_us + offset_us
        previous, self._previous = (
            self._previous,
            ClockSample(synchronised=not status & _UNSYNCHRONISED, max_error_us=bound_us),
        )
        return [self._previous] if self._previous != previous else []

    def close(self) -> None:
        """Do nothing: no descriptor is open."""
