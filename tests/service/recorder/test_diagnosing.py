"""A fault of the diagnosis costs a verdict, never the checkpoint; and it remembers no more than it must."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.diagnose.hand import measured, save, thread
from tests.patience import PATIENCE_SECONDS, wait_until

from ckptprof.diagnose import diagnosis
from ckptprof.diagnose.ceilings import Ceilings
from ckptprof.model import Checkpoint, Level
from ckptprof.service.probing.stored_ceilings import store_ceilings
from ckptprof.service.recorder import diagnosing
from ckptprof.service.recorder.diagnosing import HISTORY, JOBS, Diagnosis, ceilings_of_database, gpu_counter
from ckptprof_collectors import abandoned
from ckptprof_collectors.abandoned import MAX_PER_KIND, AbandonedWork
from ckptprof_collectors.gpus import nvml


def one(begin: float, **more: object) -> Checkpoint:
    """Return a save with measures."""
    return save(Level.TRACE, 2, measured(thread(Level.TRACE, 2, copy=2)), begin=begin, **more)  # type: ignore[arg-type]


def test_a_fault_is_told_and_counted_and_the_checkpoint_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one has its verdict again."""
    told: list[str] = []
    sound = diagnosis.diagnose

    def breaking(checkpoint: Checkpoint, *others: object) -> Checkpoint:
        if checkpoint.step == 2:
            raise ZeroDivisionError("no time")
        return sound(checkpoint, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(diagnosis, "diagnose", breaking)
    judge = Diagnosis(told.append)
    kept = judge.diagnose_all([one(0, step=1), one(100, step=2), one(200, step=3)])
    assert [checkpoint.step for checkpoint in kept] == [1, 2, 3]
    assert [checkpoint.verdict is not None for checkpoint in kept] == [True, False, True]
    assert judge.faults == 1
    assert "ZeroDivisionError at test_diagnosing.py:" in told[0]


def test_what_goes_on_is_judged_for_what_was_seen() -> None:
    """It is no checkpoint yet: no later one is judged by it."""
    diagnosis = Diagnosis()

    (judged,) = diagnosis.diagnose_unfinished([one(0)], [])

    assert judged.verdict is not None
    assert diagnosis._jobs == {}


def test_what_it_remembers_is_bounded_and_without_bulk() -> None:
    """By checkpoints of a job, and by jobs."""
    diagnosis = Diagnosis()
    for number in range(HISTORY + 5):
        diagnosis.diagnose_all([one(number * 10.0)])
    for number in range(JOBS + 5):
        diagnosis.diagnose_all([one(0, job=f"job-{number}")])
    assert len(diagnosis._jobs) == JOBS
    assert all(len(series) <= HISTORY for series in diagnosis._jobs.values())
    remembered = [known for series in diagnosis._jobs.values() for known in series.values()]
    assert all(known.measures is not None and not known.measures.threads for known in remembered)


def test_ceilings_are_asked_for_at_each_checkpoint() -> None:
    """So that a probe counts from then on."""
    asked: list[int] = []

    def ceilings() -> tuple[()]:
        asked.append(1)
        return ()

    Diagnosis(ceilings=ceilings).diagnose_all([one(0), one(10)])
    assert len(asked) == 2


def test_gpus_in_use_are_asked_for_at_each_checkpoint() -> None:
    """While its processes still run."""
    (told,) = Diagnosis(gpus=lambda checkpoint: 8 if checkpoint.step == 7 else None).diagnose_all([one(0, step=7)])

    assert told.cost is not None
    assert (told.cost.gpus, told.cost.gpus_from) == (8, "nvml")


def test_where_there_is_no_driver_gpus_are_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the checkpoint has its verdict all the same."""
    monkeypatch.setattr(nvml, "LIBRARY", "libno-such-driver.so.1")
    (told,) = Diagnosis(gpus=gpu_counter()).diagnose_all([one(0)])

    assert told.verdict is not None
    assert told.cost is not None
    assert told.cost.gpus_from != "nvml"


def test_a_driver_that_does_not_answer_costs_the_number_of_gpus_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorder goes on, and asks no more while too many questions hang."""
    gate, asked, left = threading.Event(), list[int](), AbandonedWork()
    monkeypatch.setattr(diagnosing, "GPUS_SECONDS", 0.0)
    monkeypatch.setattr(abandoned, "ABANDONED", left)

    def used_by(_: object, __: object) -> None:
        asked.append(1)
        gate.wait(PATIENCE_SECONDS)

    monkeypatch.setattr(nvml.NvmlGpus, "count_used_by", used_by)
    told = Diagnosis(gpus=gpu_counter()).diagnose_all([one(100.0 * number) for number in range(MAX_PER_KIND + 2)])

    assert all(one.verdict is not None for one in told)
    assert left.count("gpus") == MAX_PER_KIND
    gate.set()
    wait_until(lambda: left.remove_ended() or left.count() == 0)
    assert len(asked) == MAX_PER_KIND


def test_a_probe_that_is_kept_later_counts_from_then_on(tmp_path: Path) -> None:
    """It is read when the folder changes, and where there is no database nothing is."""
    kept = ceilings_of_database(tmp_path / "ckptprof.db")
    assert tuple(kept()) == ()
    probe = Ceilings(
        version="1", host="h", at_ns=1, spent_ns=1, path="/ckpt", mount_point="/ckpt", fs_type="ext4", source="x",
        device="nvme0n1", server=None, size_bytes=1, phase_seconds=1.0, busy_before=None, complete=True, measures=(),
    )  # fmt: skip
    store_ceilings(tmp_path, probe)
    assert tuple(kept()) == (probe,)
    assert tuple(ceilings_of_database("postgresql://nowhere/x")()) == ()
