"""Samples that actors leave in files for the process that trains are no checkpoints, however they are named."""

from __future__ import annotations

import pytest
from tests.detect.stage import MIB, Stage

from ckptprof.model import Checkpoint, Kind

NPZ = b"PK\x03\x04\x2d\x00" + bytes(20) + b"\x0a\x00\x14\x00obs_tm.npy"
TURNS = 6
LEVELS = pytest.mark.parametrize("trace", [True, False], ids=["trace", "poll"])


def taken_in(stage: Stage, *, hired: bool) -> list[Checkpoint]:
    """Return what is told of turns in which one process leaves a file that another reads whole, right after it."""
    reader = stage.process(100 if hired else 900)
    for turn in range(TURNS):
        at_s = 3.0 + 4 * turn
        if hired:
            writer = stage.process(200 + turn, parent_pid=100, born_s=at_s - 1, exit_s=at_s + 1)
        else:
            writer = stage.process(200) if turn == 0 else writer
        path = f"/run/iter_{turn:04}/arrays.npz"
        stage.write(writer, path, at_s, 0.5, 30 * MIB, magic=NPZ)
        stage.read(reader, path, at_s + 1.2, 0.1, 30 * MIB)
    return [one for one in stage.play(3.0 + 4 * TURNS + 10) if one.kind is not Kind.COPY]


@LEVELS
def test_what_is_handed_in_by_who_is_begun_for_it_is_none(*, trace: bool) -> None:
    """Only of the first nobody knows yet that it is one of many."""
    told = taken_in(Stage(trace=trace), hired=True)

    assert [(one.kind, one.step) for one in told] == [(Kind.SAVE, 0)]


@LEVELS
def test_what_a_driver_reads_of_a_worker_that_goes_on_is_a_state(*, trace: bool) -> None:
    """The worker is begun later than its driver, as by mp.spawn or Ray, and writes all of the series."""
    stage = Stage(trace=trace)
    driver, worker = stage.process(100), stage.process(200, parent_pid=100)
    for turn in range(TURNS):
        path, at_s = f"/run/iter_{turn:04}/arrays.npz", 3.0 + 4 * turn
        stage.write(worker, path, at_s, 0.5, 30 * MIB, magic=NPZ)
        stage.read(driver, path, at_s + 1.2, 0.1, 30 * MIB)
    told = stage.play(3.0 + 4 * TURNS + 10)

    assert [one.step for one in told if one.kind is Kind.SAVE] == list(range(TURNS))


@LEVELS
def test_what_an_evaluator_reads_of_who_trains_is_a_state(*, trace: bool) -> None:
    """It is begun later than who writes."""
    told = taken_in(Stage(trace=trace), hired=False)

    assert [one.step for one in told if one.kind is Kind.SAVE] == list(range(TURNS))


@LEVELS
def test_who_goes_back_to_the_best_of_what_was_written_for_it_has_states(*, trace: bool) -> None:
    """It forks a process for each save, reads one of many when it has become worse, and saves on."""
    stage = Stage(trace=trace)
    trainer = stage.process(100)
    for turn in range(TURNS):
        at_s = 3.0 + 4 * turn
        writer = stage.process(200 + turn, parent_pid=100, born_s=at_s - 1, exit_s=at_s + 1)
        stage.write(writer, f"/run/epoch_{turn:04}/arrays.npz", at_s, 0.5, 30 * MIB, magic=NPZ)
    stage.read(trainer, "/run/epoch_0001/arrays.npz", 3.0 + 4 * 3 + 2, 0.1, 30 * MIB)
    told = [(one.kind, one.step) for one in stage.play(3.0 + 4 * TURNS + 10)]

    assert [step for kind, step in told if kind is Kind.SAVE] == list(range(TURNS))
    assert (Kind.RESTORE, 1) in told


@LEVELS
@pytest.mark.parametrize("spare_pid", [150, 300], ids=["before it", "after it"])
def test_a_spare_that_was_begun_before_who_saves_restores(spare_pid: int, *, trace: bool) -> None:
    """It waits for the end of that, and goes on from its last state."""
    stage = Stage(trace=trace)
    parent = stage.process(100)
    rank = stage.process(200, parent_pid=parent.pid, exit_s=20.0)
    spare = stage.process(spare_pid, parent_pid=parent.pid)
    for turn in range(3):
        stage.write(rank, f"/run/iter_{turn:04}/arrays.npz", 6.0 + 4 * turn, 0.5, 30 * MIB, magic=NPZ)
    stage.read(spare, "/run/iter_0002/arrays.npz", 22.0, 0.1, 30 * MIB)
    told = stage.play(60)

    assert [(one.kind, one.step) for one in told if one.kind is Kind.RESTORE] == [(Kind.RESTORE, 2)]
