"""Numbers and times as they are printed."""

from __future__ import annotations

from datetime import timedelta, timezone

import pytest

from ckptprof import units
from ckptprof.errors import UsageError

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (1536, "1.54 kB"), (12 << 20, "12.6 MB"),
        (954 << 20, "1.00 GB"), (999_600_000, "1.00 GB"), (5 << 60, "5.76 EB"), (None, "not observed"),
    ],
)  # fmt: skip
def test_size(value: int | None, expected: str) -> None:
    """Sizes are SI with three digits, and None is never a number."""
    assert expected == units.size(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, "0 B/s"),
        (267_400_000, "267 MB/s"),
        (2.484e9, "2.48 GB/s"),
        (999_600_000, "1.00 GB/s"),
        (None, "not observed"),
    ],
)
def test_rate(value: float | None, expected: str) -> None:
    """Bandwidth is SI."""
    assert expected == units.rate(value)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0 s"), (0.0000001, "<1 ms"), (0.042, "42 ms"), (0.42, "0.42 s"), (9.994, "9.99 s"), (9.996, "10.0 s"),
        (39.21, "39.2 s"), (59.96, "1 min 00 s"), (125, "2 min 05 s"), (3599.6, "1 h 00 min"), (3840, "1 h 04 min"),
        (273_600, "3 d 04 h"),
    ],
)  # fmt: skip
def test_duration(seconds: float, expected: str) -> None:
    """Durations read as one would say them."""
    assert expected == units.duration(seconds * SECOND)


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0.0, "0 %"), (0.0004, "<0.1 %"), (0.075, "7.5 %"), (0.99996, ">99.9 %"), (1.0, "100 %"), (None, "not observed")],
)
def test_percent(share: float | None, expected: str) -> None:
    """What is small is not called nothing, and what is nearly all is not called all."""
    assert expected == units.percent(share)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (9e-7, "<0.01 ms"), (9.9e-6, "0.01 ms"), (0.000181, "0.18 ms"), (0.0014826, "1.5 ms"), (0.0119, "12 ms"),
        (0.42, "420 ms"), (1.0737, "1.1 s"), (549.8, "550 s"), (None, "not observed"),
    ],
)  # fmt: skip
def test_latency(seconds: float | None, expected: str) -> None:
    """No more digits than a factor of two has, and never nothing."""
    assert expected == units.latency(seconds)


def test_speed_needs_time() -> None:
    """An event without a length has no bandwidth."""
    assert units.speed(10, 0) is None
    assert units.speed(10, SECOND) == 10.0


def test_times_beyond_the_calendar_are_numbers() -> None:
    """A clock that is off by millennia stops no report."""
    beyond = 10**30
    utc = timezone.utc

    assert units.stamp(beyond, utc) == f"{beyond} ns"
    assert units.fixed_zone(beyond, utc) == utc
    assert units.stamp(None, utc) == "not observed"


def test_offsets_have_names() -> None:
    """Half hours and the west of Greenwich included."""
    names = [units.offset_name(timezone(timedelta(minutes=minutes))) for minutes in (0, 60, 330, -210)]

    assert names == ["UTC", "UTC+01:00", "UTC+05:30", "UTC-03:30"]


def test_one_setting_changes_all_sizes_and_recorded_sentences() -> None:
    """Decimal unless binary is asked for; what is neither is refused by name."""
    sentence = "20.0 s asleep waiting for nvme0n1 at 52.4 MB/s, 105 MB in 3 MBs.pt"
    try:
        units.choose("binary")
        told = units.size(1 << 30), units.rate(1.5 * 2**20), units.size(1000), units.restated(sentence)
    finally:
        units.choose("decimal")

    assert told == (
        "1.00 GiB", "1.50 MiB/s", "0.98 KiB", "20.0 s asleep waiting for nvme0n1 at 50.0 MiB/s, 100 MiB in 3 MBs.pt"
    )  # fmt: skip
    assert (units.size(1 << 30), units.restated(sentence)) == ("1.07 GB", sentence)
    with pytest.raises(UsageError, match="'si' is not a system of units"):
        units.choose("si")
