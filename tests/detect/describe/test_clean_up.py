"""Deletion in line: for how long the thread that trains goes on with it after a save, by its calls or by looks."""

from __future__ import annotations

import pytest
from tests.detect.stage import MIB, SECOND_NS, Stage
from tests.detect.tracer import life, mono

from ckptprof.detect.describe.revisions import latest_revisions
from ckptprof.detect.pipeline import Detector
from ckptprof.model import Checkpoint
from ckptprof_collectors.processes.syscalls import RUNNING
from ckptprof_collectors.samples import ThreadSample

UNLINKAT, GETDENTS, FUTEX = 263, 217, 202


def told(stage: Stage, until_s: float) -> Checkpoint:
    """Return the one save of a stage as it was told last."""
    detector = Detector(stage.header())
    found = [checkpoint for frame in stage.frames(until_s) for checkpoint in detector.ingest(frame)]
    (only,) = latest_revisions([*found, *detector.finish()])
    return only


def delete(stage: Stage, number: int, start_s: float, step_s: float, *, tid: int = 100) -> None:
    """Have a thread delete so many files of an older checkpoint, each right after the one before."""
    for file in range(number):
        at_s = start_s + (file + 1) * step_s
        path = f"/ckpt/checkpoint-old-1/optimizer_{file:06d}.bin"
        event = life("unlinked", at_s, inode=None, duration_s=0.9 * step_s, path=path)
        event = type(event)(**{**{name: getattr(event, name) for name in event.__struct_fields__}, "tid": tid})
        stage.extra.append((at_s + 0.001, event))


def test_what_is_deleted_right_after_a_save_holds_training_until_the_last_file() -> None:
    """Though it has names of another kind, and goes on for longer than the save."""
    stage = Stage(trace=True)
    stage.write(stage.process(), "/ckpt/checkpoint-2/model.pt", 2.0, 0.3, 40 * MIB)
    delete(stage, 400, 2.32, 0.01)

    save = told(stage, 20.0)

    assert save.measures is not None
    assert save.measures.clean_up_after_ns == pytest.approx(4.0 * SECOND_NS, rel=0.02)
    assert save.measures.clean_up_files == 400
    assert save.stall_ns is not None
    assert save.stall_ns >= 4.2 * SECOND_NS


def test_a_journal_that_each_commit_creates_and_deletes_is_no_clean_up() -> None:
    """As SQLite keeps one beside its database: between two of them the trainer trains."""
    stage = Stage(trace=True)
    stage.write(stage.process(), "/ckpt/checkpoint-2/model.pt", 2.0, 0.3, 40 * MIB)
    for commit in range(20):
        at_s = 2.4 + 0.4 * commit
        for kind, later_s in (("created", 0.0), ("unlinked", 0.02)):
            event = life(kind, at_s + later_s, inode=None, duration_s=0.001, path="/ckpt/study.db-journal")
            stage.extra.append((at_s + later_s, event))

    save = told(stage, 20.0)

    assert save.stall_ns is not None
    assert save.stall_ns < 0.5 * SECOND_NS


@pytest.mark.parametrize(("start_s", "tid"), [(2.32, 107), (3.4, 100)])
def test_what_another_thread_deletes_or_later_holds_nobody(start_s: float, tid: int) -> None:
    """Beside training, or when it had gone on."""
    stage = Stage(trace=True)
    stage.write(stage.process(), "/ckpt/checkpoint-2/model.pt", 2.0, 0.3, 40 * MIB)
    delete(stage, 100, start_s, 0.01, tid=tid)

    save = told(stage, 20.0)

    assert save.measures is not None
    assert not save.measures.clean_up_after_ns


def looks(stage: Stage, calls: list[tuple[float, int]]) -> None:
    """Have the main thread looked at."""
    for at_s, call in calls:
        running = call == RUNNING
        look = ThreadSample(
            100, 1000, 100, "python", round(at_s * 1e6), 0, 0, round(at_s), 0, None, "R" if running else "D", call, "",
            at_ns=mono(at_s),
        )  # fmt: skip
        stage.extra.append((at_s, look))


def test_looks_that_meet_it_deleting_tell_the_same() -> None:
    """With looks between in which it ran, or listed a folder; who waits for a lock deletes nothing."""
    for call, expected in ((UNLINKAT, 3.0), (FUTEX, None)):
        stage = Stage()
        trainer = stage.process()
        stage.write(trainer, "/ckpt/checkpoint-2/model.pt", 2.0, 0.3, 40 * MIB)
        calls = (call, RUNNING, call, GETDENTS)
        looks(stage, [(2.4 + tick / 10, calls[tick % 4]) for tick in range(30)] + [(5.4, RUNNING), (5.5, RUNNING)])

        save = told(stage, 20.0)

        assert save.measures is not None
        held_ns = save.measures.clean_up_after_ns
        assert held_ns == (None if expected is None else pytest.approx(expected * SECOND_NS, abs=0.15 * SECOND_NS))
