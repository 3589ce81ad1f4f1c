"""How far the wall clock may be off, as the kernel says."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ckptprof_collectors.devices.wall_clock import SAMPLE_INTERVAL_SECONDS, Timex, WallClock, query_kernel
from ckptprof_collectors.kernelfs import KernelFs, UnavailableError
from ckptprof_collectors.samples import ClockSample


def test_it_is_told_when_it_changed() -> None:
    """Now and then, not at each look at the host."""
    now, told = [100.0], [(0, 1500, 20, 0x2001)]
    clock = WallClock(KernelFs(), clock=lambda: now[0], query=lambda: told[0])

    assert clock.read() == [ClockSample(synchronised=True, max_error_us=1500)]
    told[0] = (0, 16_000_000, 16_000_000, 0x40)
    assert clock.read() is None
    now[0] += SAMPLE_INTERVAL_SECONDS
    assert clock.read() == [ClockSample(synchronised=False, max_error_us=None)]
    now[0] += SAMPLE_INTERVAL_SECONDS
    assert clock.read() == []


@pytest.mark.parametrize(
    ("told", "bound_us"),
    [
        ((0, 0, 0, 0x2001), None),  # systemd-timesyncd
        ((0, 0, 16_000_000, 0x2000), None),  # phc2sys
        ((-2_000_001, 1500, 20, 0x2001), 3501),  # ntpd, in nanoseconds
        ((2000, 1500, 20, 0x0001), 3500),  # in microseconds
    ],
)
def test_only_what_somebody_has_estimated_bounds_it(told: Timex, bound_us: int | None) -> None:
    """A greatest error of 0 says that the clock is kept, not how well; what it is still to be moved by is an error."""
    clock = WallClock(KernelFs(), query=lambda: told)

    assert clock.read() == [ClockSample(synchronised=True, max_error_us=bound_us)]


def test_who_may_not_ask_says_so() -> None:
    """As within a filter of system calls."""

    def refused() -> Timex:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    with pytest.raises(UnavailableError, match=r"^adjtimex\(2\): Operation not permitted$"):
        WallClock(KernelFs(), query=refused)


def test_files_tell_nothing_of_it(tmp_path: Path) -> None:
    """A recorded tree of /proc has no clock."""
    with pytest.raises(UnavailableError, match="system call"):
        WallClock(KernelFs(proc=tmp_path))


def test_the_kernel_tells_at_most_sixteen_seconds() -> None:
    """NTP_PHASE_LIMIT: from then on it is not synchronised."""
    try:
        _, max_error_us, _, status = query_kernel()
    except PermissionError:
        pytest.skip("adjtimex(2) is not permitted here")

    assert 0 <= max_error_us <= 16_000_000
    assert max_error_us < 16_000_000 or status & 0x40
