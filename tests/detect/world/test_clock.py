"""Stamps of files, of a wall clock that anyone may set, on the monotonic clock."""

from __future__ import annotations

import pytest
from tests.detect.stage import MIB, MONOTONIC_NS, SECOND_NS, WALL_NS

from ckptprof import model
from ckptprof.detect.world.recording_clock import RecordingClock
from ckptprof_collectors.samples import ClockSample, FileFact

HOUR_S = 3600.0


def fact(born_s: float | None, modified_s: float) -> FileFact:
    """Return what is said of a file that was born and written at these times of the wall clock."""
    written_ns = WALL_NS + int(modified_s * SECOND_NS)
    born_ns = None if born_s is None else WALL_NS + int(born_s * SECOND_NS)
    return FileFact(1, 1, 8, 7, "/runs/last.ckpt", MIB, is_directory=False, birth_ns=born_ns, modified_ns=written_ns,
                    changed_ns=written_ns, accessed_ns=None, magic=None)  # fmt: skip


def clock(*settings: tuple[float, float]) -> RecordingClock:
    """Return a clock that was looked at each second for twenty, and set at these times by so much."""
    made = RecordingClock(MONOTONIC_NS, WALL_NS)
    for at_s in range(1, 21):
        by_s = sum(by_s for when_s, by_s in settings if when_s <= at_s)
        made.update(MONOTONIC_NS + at_s * SECOND_NS, WALL_NS + int((at_s + by_s) * SECOND_NS))
    return made


def times(clock: RecordingClock, fact: FileFact) -> tuple[float | None, float]:
    """Return when a file was born and written, in seconds since the begin."""
    steady = clock.unset_stamps(fact)
    born_s = None if steady.birth_ns is None else (clock.mono(steady.birth_ns) - MONOTONIC_NS) / SECOND_NS
    return born_s, (clock.mono(steady.modified_ns) - MONOTONIC_NS) / SECOND_NS


@pytest.mark.parametrize("by_s", [HOUR_S, -HOUR_S, 5.0, -5.0])
def test_stamps_of_before_and_after_a_jump_are_in_their_order(by_s: float) -> None:
    """Born before the clock was set, written after; and long before the recording began."""
    made = clock((10.0, by_s))

    assert times(made, fact(3.0, 19.0 + by_s)) == (3.0, 19.0)
    assert times(made, fact(None, 18.0 + by_s)) == (None, 18.0)
    assert times(made, fact(-1e7, 19.0 + by_s)) == (-1e7, 19.0)
    assert made.wall(MONOTONIC_NS) == WALL_NS + by_s * SECOND_NS


def test_a_clock_that_is_set_twice_is_followed_twice() -> None:
    """Back by an hour by mistake, and ahead again."""
    made = clock((5.0, -HOUR_S), (15.0, HOUR_S))

    assert times(made, fact(2.0, 8.0 - HOUR_S)) == (2.0, 8.0)
    assert times(made, fact(12.0 - HOUR_S, 19.0)) == (12.0, 19.0)


def test_a_clock_that_is_slewed_is_followed_without_a_jump() -> None:
    """As NTP does: half a thousandth, for a day."""
    made = RecordingClock(MONOTONIC_NS, WALL_NS)
    for at_s in range(0, 86_400, 10):
        made.update(MONOTONIC_NS + at_s * SECOND_NS, WALL_NS + int(at_s * 1.0005 * SECOND_NS))

    known = fact(None, 86_390 * 1.0005)

    assert made.unset_stamps(known) is known
    assert times(made, known)[1] == pytest.approx(86_390, abs=0.01)


def test_a_server_s_clock_is_taken_as_it_is() -> None:
    """It is ahead of ours: no setting of ours explains its stamps."""
    assert times(clock((10.0, HOUR_S)), fact(None, 25.0 + HOUR_S)) == (None, 25.0)


def test_how_far_it_may_be_off_grows_until_it_is_compared_again() -> None:
    """By half a thousandth, as the kernel reckons; nobody knows of a clock that nothing keeps."""
    made = clock()
    assert made.state is None

    made.record_kernel_state(MONOTONIC_NS + 10 * SECOND_NS, ClockSample(synchronised=True, max_error_us=1500))
    assert made.state == model.Clock(synchronised=True, bound_ns=1_500_000 + 10 * 500_000)

    made.record_kernel_state(MONOTONIC_NS + 20 * SECOND_NS, ClockSample(synchronised=False, max_error_us=16_000_000))
    assert made.state == model.Clock(synchronised=False, bound_ns=None)

    made.record_kernel_state(MONOTONIC_NS + 30 * SECOND_NS, ClockSample(synchronised=True, max_error_us=None))
    assert made.state == model.Clock(synchronised=True, bound_ns=None)
