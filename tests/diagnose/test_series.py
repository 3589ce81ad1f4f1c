"""What earlier saves of a job tell: how often it saves, and which save was waited for."""

from __future__ import annotations

from typing import Any

import pytest
from tests.diagnose.hand import GIB, MIB, ns, save

from ckptprof.diagnose.context import CheckpointContext, gather_context
from ckptprof.diagnose.verdict.save_series import back_to_back, interval, waited_for
from ckptprof.model import Checkpoint, Level, Mode, Writer


def _series(*saves: Checkpoint) -> CheckpointContext:
    return gather_context(saves[-1], saves[:-1])


def _one(begin: float, took: float, **more: Any) -> Checkpoint:
    writer = Writer(pid=100, comm="python", bytes=GIB, rank=0, role="thread")
    return save(Level.POLL, took, None, begin=begin, **{"writers": (writer,), "mode": Mode.ASYNC, **more})


def test_the_interval_is_that_of_the_last_saves() -> None:
    """A job that goes on with another interval has that one after a few saves; what it was before tells nothing."""
    before = [_one(60.0 * at, 1) for at in range(20)]
    now = [_one(60.0 * 20 + 10.0 * at, 1) for at in range(8)]

    assert interval(_series(*before, *now)) == 10
    assert interval(_series(*before)) == 60
    assert interval(_series(before[0])) is None


@pytest.mark.parametrize(("gap", "follows"), [(0.8, True), (1.2, False), (-8.0, True), (-12.0, False)])
def test_saves_that_begin_as_the_one_before_ends_follow_it(gap: float, *, follows: bool) -> None:
    """Within a twentieth of its length, or before its second half; three in a row wait for each other."""
    saves = [_one(at * (20 + gap), 20) for at in range(3)]

    assert back_to_back(_series(*saves)) == (
        "the last 3 saves each started as soon as the previous one ended" if follows else None
    )


@pytest.mark.parametrize(("held", "waited"), [(5.0, True), (3.0, False)])
def test_two_saves_in_a_row_are_chance_unless_training_was_held(held: float, *, waited: bool) -> None:
    """For a fifth of the save before."""
    saves = [_one(0, 20), _one(20, 20, stall_ns=ns(held))]

    assert (back_to_back(_series(*saves)) is not None) == waited


@pytest.mark.parametrize(
    ("took", "gap", "bytes_", "waited"),
    [
        (0.6, 0.04, GIB, True),
        (0.6, 0.06, GIB, False),  # a step of training fits between
        (20.0, 0.8, GIB, True),
        (20.0, 1.2, GIB, False),
        (0.4, 0.0, GIB, False),  # so short that it is chance
        (0.6, 0.0, GIB * 3 // 2, True),
        (0.6, 0.0, GIB * 5 // 2, False),  # of another series
    ],
)
def test_a_save_waited_for_one_that_another_thread_wrote(took: float, gap: float, bytes_: int, *, waited: bool) -> None:
    """It began at once when that one was done, and is of the same series."""
    saves = [_one(0, took), _one(took + gap, took, bytes=bytes_)]

    assert (waited_for(_series(*saves)) is not None) == waited


def test_what_was_written_by_training_itself_is_not_waited_for() -> None:
    """One save that blocks training cannot still go on at the next."""
    mine = (Writer(pid=100, comm="python", bytes=MIB, rank=0, role="trainer"),)

    assert waited_for(_series(_one(0, 5, writers=mine), _one(5, 5, writers=mine))) is None
