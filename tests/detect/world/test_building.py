"""What is built in memory before the first byte and after the last, told from what training takes and gives back."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from ckptprof.detect.world.memory_growth import find_build_after, find_build_before
from ckptprof.detect.world.process_usage import MemoryChange

MIB = 1 << 20
SIZE = 100 * MIB
LOOK_S = 0.1


def looks(
    level: Callable[[float], float],
    until_s: float,
    *,
    touched: Callable[[float], float] = lambda _: 1.0,
    every_s: float = LOOK_S,
) -> list[MemoryChange]:
    """Return looks at a memory of so many MiB by second; it touched so many times as much as it grew."""
    times = [every_s * count for count in range(round(until_s / every_s) + 1)]
    return [
        MemoryChange(
            round(low * 1e9), round(high * 1e9), round((level(high) - level(low)) * MIB),
            round(touched(high) * abs(level(high) - level(low)) * MIB), round(level(high) * MIB),
        )
        for low, high in pairwise(times)
    ]  # fmt: skip


def ramp(start_s: float, end_s: float, mib: float) -> Callable[[float], float]:
    """Return a level that rises evenly in a time, from 50 MiB."""
    return lambda at_s: 50 + mib * min(1.0, max(0.0, (at_s - start_s) / (end_s - start_s)))


def begun(level: Callable[[float], float], released_mib: float = 0, read_mib: int = 0, **seen: Any) -> float | None:
    """Return for how many seconds before its first byte, at second 8, a process built what it wrote."""
    seen_ = looks(lambda at_s: level(at_s) - released_mib * (at_s > 8.2), 9.0, **seen)
    found = find_build_before(seen_, 8 * 10**9, round(8.2e9), SIZE, lambda *_: read_mib * MIB)
    return None if found is None else (found[1] - found[0]) / 1e9


def ended(level: Callable[[float], float], read_s: float = 0.5, **seen: Any) -> float | None:
    """Return for how many seconds after its last byte, at second 2, a process built of what it had read."""
    found = find_build_after(looks(level, 12.0, **seen), round((2 - read_s) * 1e9), 2 * 10**9, SIZE)
    return None if found is None else (found[1] - found[0]) / 1e9


def test_what_is_built_is_more_memory_than_training_ever_had() -> None:
    """It is taken while training's stands still, with its pieces, and with what is left out of the file."""
    assert begun(ramp(6, 8, 100)) == pytest.approx(2.0, abs=LOOK_S)
    assert begun(ramp(7, 8, 350)) == pytest.approx(1.0, abs=LOOK_S)
    assert begun(ramp(2.5, 8, 350)) == pytest.approx(5.5, abs=LOOK_S)
    assert begun(ramp(6, 8, 900)) == pytest.approx(2.0, abs=LOOK_S)


def test_what_is_built_begins_where_training_gave_back_for_the_last_time() -> None:
    """Though each step of training takes a little more than the one before."""

    def level(at_s: float) -> float:
        return ramp(7.5, 8, 150)(at_s) + (50 * (at_s % 0.3) + 4 * at_s if at_s < 7.45 else 0)

    assert begun(level) == pytest.approx(0.5, abs=LOOK_S)


@pytest.mark.parametrize(("read_mib", "build_s"), [(0, 2.0), (60, 2.0), (120, None)])
def test_what_it_read_meanwhile_is_not_built(read_mib: int, build_s: float | None) -> None:
    """A data set that is loaded takes memory, too."""
    found = begun(ramp(6, 8, 150), read_mib=read_mib)

    assert found == (build_s and pytest.approx(build_s, abs=LOOK_S))


def test_a_table_that_grows_is_moved_while_it_is_built() -> None:
    """The old one is given back: pickle has one of all objects that it met. Most of what was taken stays."""

    def level(mib: float) -> Callable[[float], float]:
        return lambda at_s: ramp(6, 8, 150)(at_s) + (mib if 6.85 < at_s < 7.05 else 0)

    assert begun(level(25)) == pytest.approx(2.0, abs=LOOK_S)
    assert begun(level(-50)) is None


@pytest.mark.parametrize(
    "level",
    [
        ramp(6, 8, 60),
        ramp(6, 7.2, 100),
        ramp(0, 8, 400),
        ramp(1.5, 8, 100),
        lambda at_s: ramp(7, 8, 110)(at_s) + ramp(5, 6.4, 200)(at_s),
        lambda at_s: ramp(2, 3, 300)(at_s) - ramp(3, 3.1, 300)(at_s) + ramp(5, 8, 400)(at_s),
        lambda at_s: 50 + 200 * (at_s % 1.0),
    ],
    ids=["less", "earlier", "ever", "not seen before", "after other work", "as it did before", "training"],
)
def test_what_else_takes_memory_tells_nothing_of_a_save(level: Callable[[float], float]) -> None:
    """It has to be what is written, right before it is, and out of the ordinary."""
    assert begun(level) is None


def test_what_is_touched_and_given_back_is_not_built() -> None:
    """As what training takes for the first time in a step."""
    assert begun(ramp(6, 8, 100), touched=lambda _: 2.0) is None
    assert ended(ramp(2, 5, 100), touched=lambda _: 2.0) is None


def test_the_sample_in_which_it_started_to_build_is_training_for_a_part() -> None:
    """As much of it as the memory that grew needs at the rate of the next one; as is what was touched in it."""
    level, touched = ramp(7.5, 8, 100), {7.6: 3.0, 7.8: 1.0, 8.0: 3.0}
    assert begun(level, every_s=0.2, touched=lambda at_s: touched.get(round(at_s, 1), 1.0)) == pytest.approx(0.5)


def test_looks_that_are_far_apart_tell_nothing() -> None:
    """When memory grew between them is not known."""
    assert begun(ramp(6, 8, 100), every_s=1.0) is None
    assert ended(ramp(2, 5, 100), every_s=1.0) is None


def in_three(first_s: float, second_s: float, third_s: float, rested_s: float = 3) -> Callable[[float], float]:
    """Return a level that rises until training begins, then by 40 MiB at three times."""
    return lambda at_s: ramp(0, rested_s, 300)(at_s) + 40 * sum(at_s > one for one in (first_s, second_s, third_s))


def test_what_is_released_with_the_last_byte_was_built_since_memory_was_at_that_level() -> None:
    """Though it pauses, as a layer is compressed, and trained for less than it built: both take long on a busy host."""
    level = in_three(4.95, 5.95, 6.95)

    assert begun(level, released_mib=120) == pytest.approx(3.1, abs=LOOK_S)
    assert begun(level, released_mib=128) == pytest.approx(3.1, abs=LOOK_S)
    assert begun(level) is None


@pytest.mark.parametrize(
    ("level", "released_mib"),
    [
        (in_three(4.95, 5.95, 6.95), 70),
        (in_three(7.65, 7.75, 7.85, rested_s=7.3), 120),
        (in_three(4.95, 5.15, 7.85), 120),
        (in_three(4.95, 5.95, 6.95, rested_s=4.95), 120),
        (lambda at_s: ramp(0, 8, 400)(at_s) + ramp(7, 8, 1)(at_s), 400),
        (lambda at_s: in_three(4.95, 5.95, 6.95)(at_s) + ramp(3.2, 3.3, 60)(at_s) - ramp(4.2, 4.3, 60)(at_s), 120),
        (lambda at_s: in_three(4.95, 5.95, 6.95)(at_s) + 40 * (5.2 < at_s % 1.0 + 5 < 5.5) * (at_s > 5), 120),
    ],
    ids=["little", "a moment", "a long pause", "no rest before", "since the last save", "as training had", "in steps"],
)
def test_what_is_released_tells_nothing_where_it_may_be_training(
    level: Callable[[float], float], released_mib: int
) -> None:
    """A buffer of samples is also given back when the save has ended."""
    assert begun(level, released_mib) is None


def test_what_is_parsed_grows_from_the_last_byte_on() -> None:
    """Also after the bytes were given back, and with pauses."""
    assert ended(ramp(2, 5, 60)) == pytest.approx(3.0, abs=LOOK_S)
    assert ended(lambda at_s: ramp(2.1, 5, 60)(at_s) - ramp(2.0, 2.1, 50)(at_s)) == pytest.approx(3.0, abs=LOOK_S)
    copied = lambda at_s: ramp(2, 2.2, 100)(at_s) - ramp(2.3, 2.4, 100)(at_s) + ramp(2.4, 5, 60)(at_s)  # noqa: E731
    assert ended(copied) == pytest.approx(3.0, abs=LOOK_S)
    assert ended(lambda at_s: ramp(2, 4, 150)(at_s) - ramp(4, 4.1, 100)(at_s)) == pytest.approx(2.0, abs=LOOK_S)
    assert ended(lambda at_s: max(ramp(2, 3, 30)(at_s), ramp(2.3, 4.0, 60)(at_s))) == pytest.approx(2.0, abs=LOOK_S)


def test_what_ends_with_giving_back_what_was_read_was_parsed_in_a_moment() -> None:
    """What is unpickled of bytes in memory: training that begins so soon gives nothing back."""
    assert ended(lambda at_s: ramp(2, 2.4, 400)(at_s) - ramp(2.4, 2.5, 150)(at_s)) == pytest.approx(0.4, abs=LOOK_S)
    assert ended(lambda at_s: ramp(2, 2.4, 400)(at_s) - ramp(2.4, 2.5, 50)(at_s)) is None


def test_what_is_parsed_pauses_and_ends_with_giving_back_what_was_read() -> None:
    """For as long as a third of the time so far, as garbage is looked for; then it may be short beside the reading."""

    def paused(at_s: float) -> float:
        return ramp(2, 4, 60)(at_s) + ramp(4.5, 6, 60)(at_s) - 50

    assert ended(paused) == pytest.approx(4.0, abs=LOOK_S)
    assert ended(lambda at_s: paused(at_s) + ramp(7.6, 8, 60)(at_s) - 50) == pytest.approx(4.0, abs=LOOK_S)
    assert ended(lambda at_s: ramp(2, 2.7, 60)(at_s) - ramp(2.7, 2.8, 20)(at_s), 1.9) == pytest.approx(0.7, abs=LOOK_S)


def test_training_that_takes_a_little_in_each_step_is_not_parsed_for_ever() -> None:
    """It grows at another pace."""
    assert ended(lambda at_s: ramp(2, 4, 60)(at_s) + ramp(2, 12, 10)(at_s)) == pytest.approx(2.0, abs=LOOK_S)


@pytest.mark.parametrize(("mib", "seconds"), [(0.7, 4.0), (1.5, 2.0)])
def test_what_is_given_back_ends_what_is_parsed(mib: float, seconds: float) -> None:
    """Training gives back in each step."""

    def level(at_s: float) -> float:
        return ramp(2, 4, 60)(at_s) - ramp(4, 4.1, mib)(at_s) + ramp(4.1, 6, 60)(at_s)

    assert ended(level) == pytest.approx(seconds, abs=LOOK_S)


@pytest.mark.parametrize(
    ("level", "read_s", "every_s"),
    [
        (ramp(2.3, 5, 60), 0.5, LOOK_S),
        (ramp(2, 5, 5), 0.5, LOOK_S),
        (ramp(2, 2.4, 60), 0.5, LOOK_S),
        (ramp(2, 2.8, 60), 1.9, LOOK_S),
        (ramp(2, 2.8, 60), 0.5, 0.4),
        (lambda at_s: ramp(2, 12, 10)(at_s) + ramp(3, 3.6, 60)(at_s), 0.5, LOOK_S),
        (lambda at_s: ramp(2, 3, 5)(at_s) + ramp(3, 4, 60)(at_s), 0.5, LOOK_S),
        (lambda at_s: 20 * (at_s // 0.4), 0.5, LOOK_S),
        (lambda at_s: ramp(2, 3, 1)(at_s) + 20 * min(2, int((at_s - 2) / 0.4 + 0.01)), 0.5, LOOK_S),
        (lambda at_s: ramp(2, 2.4, 40)(at_s) - ramp(2.4, 2.6, 40)(at_s) + ramp(2.6, 4, 40)(at_s), 0.5, LOOK_S),
    ],
    ids=[
        "later",
        "little",
        "a moment",
        "short beside the reading",
        "in few looks",
        "most of it later",
        "slow at first",
        "in leaps",
        "hardly, but for leaps",
        "given back",
    ],
)
def test_training_that_begins_is_none_of_the_restore(
    level: Callable[[float], float], read_s: float, every_s: float
) -> None:
    """It takes memory, too, but not at once, evenly and for long."""
    assert ended(level, read_s, every_s=every_s) is None
