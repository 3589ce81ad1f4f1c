"""What a training thread did before a save, by many samples of its stack."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ckptprof.detect.describe.preparation import Place, Profile
from ckptprof_collectors.samples import StackSample, ThreadStack

SECOND_NS = 1_000_000_000
LOOP, STEP, SAVE = ("main", "train.py", 10), ("step", "train.py", 3), ("main", "train.py", 12)
TRAINS = (LOOP, STEP)
DIGESTS = (SAVE, ("pack", "train.py", 7))
WRITES = (SAVE, ("pack", "train.py", 8))
WAITS = (LOOP, ("wait", "/usr/lib/python3.11/threading.py", 320))


def sampled(*parts: tuple[float, float, Place]) -> list[StackSample]:
    """Return samples eight times a second from one second until another, each time at one place."""
    return [
        StackSample(round((start + at / 8) * SECOND_NS), 7, 3, 0, (stack,), SECOND_NS // 8)
        for start, end, place in parts
        for at, stack in enumerate([ThreadStack(7, None, True, place[::-1])] * int((end - start) * 8))  # noqa: FBT003 - a struct
    ]


def prepared(
    *parts: tuple[float, float, Place], first: float, skip: float = 0.0, others: Sequence[tuple[int, int]] = ()
) -> list[tuple[float, float]] | None:
    """Return when a save of half a second was prepared, in seconds."""
    save = round(first * SECOND_NS), round((first + 0.5) * SECOND_NS)
    spans = Profile(sampled(*parts), save, others).preparation(save[0], round(skip * SECOND_NS))
    return None if spans is None else [(start / SECOND_NS, end / SECOND_NS) for start, end in spans]


def test_it_prepares_from_when_it_leaves_its_training_loop() -> None:
    """A digest before the first byte, which neither memory nor CPU time shows."""
    assert prepared((0, 5, TRAINS), (5, 7, DIGESTS), (7, 7.5, WRITES), (7.5, 9, TRAINS), first=7) == [
        pytest.approx((5, 7), abs=0.125)
    ]


def test_it_trains_up_to_the_first_byte() -> None:
    """Then nothing was prepared, whatever its memory did."""
    assert prepared((0, 5, TRAINS), (5, 5.5, WRITES), (5.5, 7, TRAINS), first=5) == []


@pytest.mark.parametrize(("after", "expected"), [(TRAINS, []), (WAITS, None)])
def test_at_the_first_save_training_is_what_goes_on_after_it(after: Place, expected: list[tuple[float, float]]) -> None:
    """The start took a third of the time before; nothing tells it from training if it only waits after the save."""
    starts = (("main", "train.py", 2),)

    assert prepared((0, 2.5, starts), (2.5, 7, TRAINS), (7, 7.5, WRITES), (7.75, 8.5, after), first=7) == expected


def test_a_step_at_another_line_of_the_script_before_the_first_save_is_training() -> None:
    """A warm-up on the line that also makes the state: the step itself is known from after the save."""
    makes, warms_up = (LOOP, ("make", "train.py", 5)), (LOOP, STEP)
    steps = (("main", "train.py", 14), STEP)

    assert prepared((0, 1.25, makes), (1.25, 4, warms_up), (4, 4.5, WRITES), (4.5, 6, steps), first=4) == []


def test_it_may_prepare_the_first_save_for_most_of_the_time_since_it_started() -> None:
    """The early third has some of it, which counts for no more than what is known of the time after the save."""
    parts = (0, 3, TRAINS), (3, 11.75, DIGESTS), (11.75, 12.25, WRITES), (12.5, 13.75, TRAINS)

    assert prepared(*parts, first=11.75) == [pytest.approx((3, 11.75), abs=0.125)]


def test_another_line_within_a_step_is_training() -> None:
    """A step has many lines, of which some are rare."""
    lines = [(LOOP, ("step", "train.py", line)) for line in range(20)]
    steps = [(at / 8, (at + 1) / 8, lines[at % 20]) for at in range(40)]
    rare = (5.0, 5.25, (LOOP, ("step", "train.py", 99)))

    assert prepared(*steps, rare, (5.25, 5.5, WRITES), (5.5, 7, TRAINS), first=5.25) == []


@pytest.mark.parametrize("function", ["evaluate", "step"])
def test_an_evaluation_before_the_save_is_none_of_it(function: str) -> None:
    """By its name, or since it calls what training calls."""
    evaluates = (("main", "train.py", 11), (function, "train.py", 3))

    assert prepared((0, 5, TRAINS), (5, 7, evaluates), (7, 7.5, WRITES), (7.5, 9, TRAINS), first=7) == []


def test_without_samples_it_is_unknown() -> None:
    """None at all, or none right before the save."""
    assert prepared(first=5) is None
    assert prepared((0, 3, TRAINS), (5, 5.5, WRITES), first=5) is None


def test_a_thread_that_always_waits_shows_nothing() -> None:
    """Another one trains."""
    assert prepared((0, 5, WAITS), (5, 5.5, WRITES), (5.5, 7, WAITS), first=5) is None


def test_it_may_prepare_for_longer_than_it_trains() -> None:
    """Soon after the previous save, whose last call returned a little later, it prepares the next."""
    saves = (2, 3.25, WRITES[1:]), (3.25, 4, TRAINS), (4, 6.75, DIGESTS), (6.75, 7.5, WRITES[1:])
    parts = (0, 2, TRAINS), *saves, (7.5, 10, TRAINS)

    assert prepared(*parts, first=7, others=[(2 * SECOND_NS, 3 * SECOND_NS)]) == [pytest.approx((4, 7), abs=0.125)]


def test_what_it_does_late_is_training_if_it_does_some_of_it_early() -> None:
    """Of one line a quarter is soon after a save: less than on average, and more than of what prepares a save."""
    late = (LOOP, ("late", "train.py", 5))
    parts = (0, 3, TRAINS), (3, 4, late), (4, 9, TRAINS), (9, 12, late), (12, 12.5, WRITES), (12.5, 15, TRAINS)

    assert prepared(*parts, first=12) == []


def test_a_thread_that_writes_for_it_starts_a_little_later() -> None:
    """Training has gone on in between."""
    parts = (0.0, 5.0, TRAINS), (5.0, 6.0, DIGESTS), (6.0, 9.0, TRAINS)

    assert prepared(*parts, first=6.5, skip=2) == [pytest.approx((5, 6), abs=0.125)]
    assert prepared(*parts, first=6.5) == []


def test_places_not_told_apart_show_nothing() -> None:
    """A preparation that fills nearly all of the time between two saves is most of the early time as well."""
    copies = [(SAVE, ("pack", "train.py", 20 + (line % 2 and line >= 24))) for line in range(72)]
    copying = [(1 + at / 8, 1 + (at + 1) / 8, place) for at, place in enumerate(copies)]

    assert prepared((0, 1, TRAINS), *copying, (10, 10.5, WRITES), (10.5, 12, TRAINS), first=10) is None
