"""The intervals of a process in rows: what is asked of them is as it would be of a list, in a quarter of the memory."""

from __future__ import annotations

import random
import sys

import pytest
from tests.detect.observed import history_of

from ckptprof.detect.world.process_counters import ProcessInterval

STEP_NS = 100_000_000


def intervals(number: int, seed: int = 7) -> list[ProcessInterval]:
    """Return intervals, some right after each other and some after a pause, with counters of all sizes."""
    dice, made = random.Random(seed), []  # noqa: S311 - data
    for at in range(number):
        counts = [dice.randrange(1 << dice.randrange(1, 40)) for _ in range(10)]
        start_ns = at * STEP_NS + dice.choice((0, dice.randrange(STEP_NS)))
        busy = dice.choice((-1.0, dice.random()))
        grown, dirtied = -dice.randrange(1 << 30), dice.randrange(1 << 30)
        made.append(ProcessInterval(start_ns, (at + 1) * STEP_NS, *counts, grown, dirtied, busy))
    return made


@pytest.mark.parametrize("number", [0, 1, 2, 300])
def test_times_select_what_overlaps_them(number: int) -> None:
    """Whatever they touch, from before the first one to after the last one, and after some were dropped."""
    every = intervals(number)
    history = history_of(every)
    edges = [0, number * STEP_NS + 1, *(at for one in every for at in one[:2])]
    dice = random.Random(3)  # noqa: S311 - data
    for at_ns in (0, number * STEP_NS // 2):
        history.forget_before(at_ns)
        every = [one for one in every if one.end_ns >= at_ns]
        for _ in range(500):
            low, high = dice.choice(edges) + dice.randrange(-2, 3), dice.choice(edges) + dice.randrange(-2, 3)
            inside = [one for one in every if one.end_ns > low and one.start_ns < high]
            assert history.between(low, high) == inside
            assert history.wrote_bytes(low, high) == sum(one.new_written_bytes for one in inside)
            assert history.returned_bytes(low, high) == sum(one.returned_bytes for one in inside)
    assert history.intervals == every


def test_counters_that_no_kernel_has_are_limited() -> None:
    """A damaged recording ends nothing."""
    history = history_of([ProcessInterval(1, 2, read_bytes=1 << 70, grown_bytes=-(1 << 70), busy=0.5)])

    assert history.intervals == [ProcessInterval(1, 2, read_bytes=(1 << 63) - 1, grown_bytes=1 - (1 << 63), busy=0.5)]


def test_they_take_a_quarter_of_what_objects_take() -> None:
    """A node with ninety processes that move bytes has a hundred thousand of them."""
    every = intervals(1000)
    history = history_of(every)
    as_objects = sum(sys.getsizeof(one) + sum(sys.getsizeof(value) for value in one) for one in every)

    assert 4 * (sys.getsizeof(history._rows) + sys.getsizeof(history.ends_ns)) < as_objects
