"""What a training thread did before a save, by many samples of its stack."""

from __future__ import annotations

from itertools import chain

import pytest

from ckptprof.detect.describe.preparation import Place, find_preparation

SECOND_NS = 1_000_000_000
LOOP, STEP, SAVE = ("main", "train.py", 10), ("step", "train.py", 3), ("main", "train.py", 12)
TRAINS = (LOOP, STEP)
DIGESTS = (SAVE, ("pack", "train.py", 7))
WRITES = (SAVE, ("pack", "train.py", 8))


def sampled(*parts: tuple[float, float, Place]) -> list[tuple[int, Place]]:
    """Return samples eight times a second from one second until another, each time at one place."""
    spans = ((start, end, place) for start, end, place in parts)
    return list(
        chain.from_iterable(
            [(round((start + at / 8) * SECOND_NS), place) for at in range(int((end - start) * 8))]
            for start, end, place in spans
        )
    )


def prepared(*parts: tuple[float, float, Place], first: float, skip: float = 0.0) -> tuple[float, float] | None:
    """Return when a save of half a second was prepared, in seconds."""
    save = round(first * SECOND_NS), round((first + 0.5) * SECOND_NS)
    span = find_preparation(sampled(*parts), save, [], round(skip * SECOND_NS))
    return None if span is None else (span[0] / SECOND_NS, span[1] / SECOND_NS)


def test_it_prepares_from_when_it_leaves_its_training_loop() -> None:
    """A digest before the first byte, which neither memory nor CPU time shows."""
    span = prepared((0, 5, TRAINS), (5, 7, DIGESTS), (7, 7.5, WRITES), (7.5, 9, TRAINS), first=7)

    assert span == pytest.approx((5, 7), abs=0.125)


def test_it_trains_up_to_the_first_byte() -> None:
    """Then nothing was prepared, whatever its memory did."""
    assert prepared((0, 5, TRAINS), (5, 5.5, WRITES), (5.5, 7, TRAINS), first=5) == (5, 5)


def test_another_line_within_a_step_is_training() -> None:
    """A step has many lines, of which some are rare."""
    lines = [(LOOP, ("step", "train.py", line)) for line in range(20)]
    steps = [(at / 8, (at + 1) / 8, lines[at % 20]) for at in range(40)]
    rare = (5.0, 5.25, (LOOP, ("step", "train.py", 99)))

    assert prepared(*steps, rare, (5.25, 5.5, WRITES), (5.5, 7, TRAINS), first=5.25) == (5.25, 5.25)


@pytest.mark.parametrize("function", ["evaluate", "step"])
def test_an_evaluation_before_the_save_is_none_of_it(function: str) -> None:
    """By its name, or since it calls what training calls."""
    evaluates = (("main", "train.py", 11), (function, "train.py", 3))

    assert prepared((0, 5, TRAINS), (5, 7, evaluates), (7, 7.5, WRITES), (7.5, 9, TRAINS), first=7) == (7, 7)


def test_without_samples_it_is_unknown() -> None:
    """None at all, or none right before the save."""
    assert prepared(first=5) is None
    assert prepared((0, 3, TRAINS), (5, 5.5, WRITES), first=5) is None


def test_a_thread_that_always_waits_shows_nothing() -> None:
    """Another one trains."""
    waits = (LOOP, ("wait", "/usr/lib/python3.11/threading.py", 320))

    assert prepared((0, 5, waits), (5, 5.5, WRITES), (5.5, 7, waits), first=5) is None


def test_it_may_prepare_for_longer_than_it_trains() -> None:
    """Soon after the previous save it prepares the next."""
    save, earlier = (7 * SECOND_NS, 8 * SECOND_NS), (2 * SECOND_NS, 3 * SECOND_NS)
    samples = sampled((0, 2, TRAINS), (2, 3, WRITES), (3, 4, TRAINS), (4, 7, DIGESTS), (7, 8, WRITES), (8, 10, TRAINS))

    assert find_preparation(samples, save, [earlier]) == pytest.approx((4e9, 7e9), abs=0.125e9)


def test_a_thread_that_writes_for_it_starts_a_little_later() -> None:
    """Training has gone on in between."""
    parts = (0.0, 5.0, TRAINS), (5.0, 6.0, DIGESTS), (6.0, 9.0, TRAINS)

    assert prepared(*parts, first=6.5, skip=2) == pytest.approx((5, 6), abs=0.125)
    assert prepared(*parts, first=6.5) == (6.5, 6.5)
