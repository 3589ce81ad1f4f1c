"""How closely a process is looked at: bursts begin, last, and end once; looks are bounded and none is forgotten."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptprof.service.sampler.activity import (
    ACTIVE_BYTES,
    OPEN_FILE_QUIET_NS,
    QUIET_NS,
    SECOND_SAMPLE_NS,
    ProcessActivity,
)

TICK_NS = 40_000_000
SECOND_NS = 1_000_000_000
MIB = 1 << 20


def burst(activity: ProcessActivity, *, ticks: int, start_ns: int = SECOND_NS) -> int:
    """Move a mebibyte in each tick; return the time of the last."""
    for number in range(ticks):
        now_ns = start_ns + number * TICK_NS
        activity.observe(now_ns, now_ns - TICK_NS, MIB, 0)
    return start_ns + (ticks - 1) * TICK_NS


@pytest.mark.parametrize(("moved", "resident"), [(ACTIVE_BYTES, 0), (0, 4 * MIB), (-1, 4 * MIB)])
def test_a_burst_begins_with_the_tick_before_its_first_bytes(moved: int, resident: int) -> None:
    """By calls, or by the pages of a mapping."""
    activity = ProcessActivity()
    activity.observe(SECOND_NS, SECOND_NS - TICK_NS, moved, resident)

    assert activity.is_in_burst()
    assert activity.burst_since_ns == SECOND_NS - TICK_NS


def mapped(activity: ProcessActivity, *, per_tick: int, until_ns: int) -> int | None:
    """Have a mapping found in a burst grow by so much; return when the burst ended, None: it did not."""
    for now_ns in range(SECOND_NS, until_ns, TICK_NS):
        activity.observe(now_ns, now_ns - TICK_NS, 0, 4 * MIB if now_ns == SECOND_NS else per_tick)
        if activity.is_in_burst():
            activity.record_mappings(now_ns, found=True)
        if activity.end_if_idle(now_ns):
            return now_ns
    return None


def test_a_mapped_file_that_a_network_brings_slowly_keeps_the_burst_open() -> None:
    """At 20 MB/s, of which no tick has much; code that is paged in now and then does not, nor a data set for ever."""
    assert mapped(ProcessActivity(), per_tick=800 << 10, until_ns=60 * SECOND_NS) is None
    assert mapped(ProcessActivity(), per_tick=32 << 10, until_ns=60 * SECOND_NS) == pytest.approx(
        1.3 * SECOND_NS, abs=TICK_NS
    )
    ended_ns = mapped(ProcessActivity(), per_tick=800 << 10, until_ns=600 * SECOND_NS)
    assert ended_ns is not None
    assert ended_ns < 130 * SECOND_NS


def test_growth_of_nothing_that_was_found_mapped_ends_with_its_burst() -> None:
    """Libraries that are loaded are no data file."""
    activity = ProcessActivity()
    last_ns = burst(activity, ticks=5)
    for now_ns in range(last_ns + TICK_NS, last_ns + QUIET_NS, TICK_NS):
        activity.observe(now_ns, now_ns - TICK_NS, 0, MIB)

    assert activity.end_if_idle(last_ns + QUIET_NS)


def test_the_rustle_of_a_log_is_no_burst() -> None:
    """Nor are counters that went back."""
    activity = ProcessActivity()
    for number in range(100):
        activity.observe(SECOND_NS + number * TICK_NS, SECOND_NS + (number - 1) * TICK_NS, ACTIVE_BYTES - 1, 4096)
    activity.observe(9 * SECOND_NS, 8 * SECOND_NS, -(1 << 40), -(1 << 40))

    assert not activity.is_in_burst()
    assert not activity.scan_due(9 * SECOND_NS)


def test_a_burst_ends_once_after_its_quiet_and_is_looked_at_once_more() -> None:
    """For commit markers and renames."""
    activity = ProcessActivity()
    last_ns = burst(activity, ticks=5)

    assert not activity.end_if_idle(last_ns + QUIET_NS - 1)
    assert activity.end_if_idle(last_ns + QUIET_NS)
    assert not activity.end_if_idle(last_ns + QUIET_NS + TICK_NS)
    assert not activity.second_sample_due(last_ns + QUIET_NS + SECOND_SAMPLE_NS - 1)
    assert activity.second_sample_due(last_ns + QUIET_NS + SECOND_SAMPLE_NS)
    assert not activity.second_sample_due(last_ns + 100 * SECOND_NS)


def test_a_file_that_is_held_open_keeps_the_burst_open_but_not_for_ever() -> None:
    """Fsync moves no byte of the process."""
    activity = ProcessActivity()
    last_ns = burst(activity, ticks=5)
    activity.has_written_file_open = True

    assert not activity.end_if_idle(last_ns + 60 * SECOND_NS)
    assert activity.end_if_idle(last_ns + OPEN_FILE_QUIET_NS)


def test_what_is_counted_meanwhile_does_not_end_a_burst_before_it_was_said_to() -> None:
    """A sender reads the state that it sends, or maps a file: its burst goes on until connections are read again."""
    activity = ProcessActivity()
    activity.alert(SECOND_NS, mappings=False, until_ns=3 * SECOND_NS)
    activity.observe(SECOND_NS + TICK_NS, SECOND_NS, MIB, 0)
    activity.alert(SECOND_NS + 2 * TICK_NS, mappings=True)
    activity.observe(SECOND_NS + 3 * TICK_NS, SECOND_NS + 2 * TICK_NS, 0, MIB)

    assert activity.is_urgent(2 * SECOND_NS)
    assert not activity.end_if_idle(3 * SECOND_NS)
    assert activity.end_if_idle(3 * SECOND_NS + QUIET_NS)


@pytest.mark.parametrize(("age_s", "most_per_second"), [(1, 26), (10, 6), (60, 3)])
def test_a_burst_that_lasts_is_looked_at_less_often(age_s: int, most_per_second: int) -> None:
    """At every tick at first, twice a second after half a minute."""
    activity = ProcessActivity()
    now_ns = burst(activity, ticks=age_s * 25)
    scans = 0
    for number in range(25):
        at_ns = now_ns + number * TICK_NS
        activity.observe(at_ns, at_ns - TICK_NS, MIB, 0)
        if activity.scan_due(at_ns):
            activity.last_scan_ns = at_ns
            scans += 1

    assert 1 <= scans <= most_per_second


def test_a_long_burst_is_looked_at_midway() -> None:
    """Files come and go in it."""
    activity = ProcessActivity()
    looks = 0
    for number in range(25 * 20):
        at_ns = SECOND_NS + number * TICK_NS
        activity.observe(at_ns, at_ns - TICK_NS, MIB, 0)
        looks += activity.midway_due(at_ns)

    assert 8 <= looks <= 10


def test_mappings_are_read_when_pages_came_in_and_then_while_there_are_any() -> None:
    """They cost a read of maps, so they are not looked at for nothing."""
    activity = ProcessActivity()
    activity.observe(SECOND_NS, SECOND_NS - TICK_NS, MIB, 0)

    assert not activity.mappings_due(SECOND_NS)
    activity.observe(SECOND_NS + TICK_NS, SECOND_NS, 0, 8 * MIB)
    assert activity.mappings_due(SECOND_NS + TICK_NS)
    activity.record_mappings(SECOND_NS + TICK_NS, found=True)
    assert not activity.mappings_due(SECOND_NS + 2 * TICK_NS)
    assert activity.mappings_due(2 * SECOND_NS)
    activity.record_mappings(2 * SECOND_NS, found=False)
    assert not activity.mappings_due(9 * SECOND_NS)


@given(st.lists(st.tuples(st.integers(0, 2 * MIB), st.integers(0, 8 * MIB), st.booleans()), max_size=120))
def test_every_burst_ends_and_every_end_has_its_second_look(steps: list[tuple[int, int, bool]]) -> None:
    """Whatever moves, and whatever is held open, nothing is looked at for ever afterwards."""
    activity = ProcessActivity()
    now_ns = SECOND_NS
    for moved, resident, holds in steps:
        now_ns += TICK_NS
        activity.observe(now_ns, now_ns - TICK_NS, moved, resident)
        activity.has_written_file_open = holds
        activity.end_if_idle(now_ns)
        activity.second_sample_due(now_ns)
    activity.end_if_idle(now_ns + OPEN_FILE_QUIET_NS)
    activity.second_sample_due(now_ns + 2 * OPEN_FILE_QUIET_NS)

    assert not activity.is_in_burst()
    assert activity.second_sample_ns is None
