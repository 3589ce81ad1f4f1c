"""What is built in memory before the first byte and after the last, told from what training takes and gives back."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from ckptprof.detect.world.building import built_after, built_before
from ckptprof.detect.world.process_usage import MemoryLook

MIB = 1 << 20
SIZE = 100 * MIB
LOOK_S = 0.1


def looks(
    level: Callable[[float], float],
    until_s: float,
    *,
    since_s: float = 0.0,
    touched: float = 1.0,
    every_s: float = LOOK_S,
) -> list[MemoryLook]:
    """Return looks at a memory of so many MiB by second, of which `touched` times as much was touched as it grew."""
    times = [since_s + every_s * count for count in range(round((until_s - since_s) / every_s) + 1)]
    return [
        MemoryLook(
            round(low * 1e9), round(high * 1e9), round((level(high) - level(low)) * MIB),
            round(touched * abs(level(high) - level(low)) * MIB), round(level(high) * MIB),
        )
        for low, high in pairwise(times)
    ]  # fmt: skip


def ramp(start_s: float, end_s: float, mib: float) -> Callable[[float], float]:
    """Return a level that rises evenly in a time, from 50 MiB."""
    return lambda at_s: 50 + mib * min(1.0, max(0.0, (at_s - start_s) / (end_s - start_s)))


def steps_of_training(at_s: float) -> float:
    """Return what training takes and gives back in each second."""
    return 30 * (at_s % 1.0)


def begun(level: Callable[[float], float], first_s: float = 8.0, **seen: float) -> float | None:
    """Return for how many seconds before its first byte a process built what it wrote."""
    found = built_before(looks(level, first_s + 1, **seen), round(first_s * 1e9), SIZE)
    return None if found is None else (found[1] - found[0]) / 1e9


def ended(level: Callable[[float], float], read_s: float = 0.5, **seen: float) -> float | None:
    """Return for how many seconds after its last byte, at second 2, a process built of what it had read."""
    found = built_after(looks(level, 12.0, **seen), round((2 - read_s) * 1e9), 2 * 10**9, SIZE)
    return None if found is None else (found[1] - found[0]) / 1e9


def test_what_is_built_is_more_memory_than_training_ever_had() -> None:
    """Whether training's memory stands still, or rises and falls in each step."""
    assert begun(ramp(6, 8, 100)) == pytest.approx(2.0, abs=LOOK_S)
    assert begun(lambda at_s: ramp(7, 8, 120)(at_s) + (steps_of_training(at_s) if at_s < 7 else 0)) == pytest.approx(
        1.0, abs=0.35
    )  # as long as it is no more than training had, it may be training


@pytest.mark.parametrize(
    "level",
    [
        ramp(6, 8, 60),  # not all that is written
        ramp(6, 8, 500),  # far more
        ramp(6, 7.2, 100),  # long before
        ramp(0, 8, 400),  # all the time
        ramp(3.5, 8, 100),  # for longer than it was seen before
        lambda at_s: ramp(7, 8, 110)(at_s) + ramp(4, 6.9, 110)(at_s),  # after something that took memory, too
        lambda at_s: 50 + 200 * (at_s % 1.0),  # training
    ],
    ids=["less", "more", "earlier", "ever", "unknown", "other", "training"],
)
def test_what_else_takes_memory_tells_nothing_of_a_save(level: Callable[[float], float]) -> None:
    """It has to be what is written, right before it is, and out of the ordinary."""
    assert begun(level) is None


def test_what_is_touched_and_given_back_is_not_built() -> None:
    """As what training takes for the first time in a step."""
    assert begun(ramp(6, 8, 100), touched=2.0) is None
    assert ended(ramp(2, 5, 100), touched=2.0) is None


def test_looks_that_are_far_apart_tell_nothing() -> None:
    """When memory grew between them is not known."""
    assert begun(ramp(6, 8, 100), every_s=1.0) is None
    assert ended(ramp(2, 5, 100), every_s=1.0) is None


def test_what_is_parsed_grows_from_the_last_byte_on() -> None:
    """Also after the bytes were given back, and with pauses."""
    assert ended(ramp(2, 5, 60)) == pytest.approx(3.0, abs=LOOK_S)
    assert ended(lambda at_s: ramp(2.1, 5, 60)(at_s) - ramp(2.0, 2.1, 100)(at_s)) == pytest.approx(3.0, abs=LOOK_S)
    assert ended(lambda at_s: max(ramp(2, 3, 30)(at_s), ramp(2.3, 4.0, 60)(at_s))) == pytest.approx(2.0, abs=LOOK_S)


@pytest.mark.parametrize(
    ("level", "read_s"),
    [
        (ramp(2.5, 5, 60), 0.5),  # not at once
        (ramp(2, 5, 5), 0.5),  # hardly anything
        (ramp(2, 2.4, 60), 0.5),  # a moment
        (ramp(2, 2.8, 60), 1.9),  # short beside the reading
        (lambda at_s: max(ramp(2, 12, 3)(at_s), ramp(2.6, 3.2, 60)(at_s)), 0.5),  # most of it later: training begins
        (
            lambda at_s: ramp(2, 2.4, 40)(at_s) - ramp(2.4, 2.6, 40)(at_s) + ramp(2.6, 4, 40)(at_s),
            0.5,
        ),  # and gives back
    ],
    ids=["later", "little", "moment", "short", "uneven", "back"],
)
def test_training_that_begins_is_none_of_the_restore(level: Callable[[float], float], read_s: float) -> None:
    """It takes memory, too, but not at once, evenly and for long."""
    assert ended(level, read_s) is None
