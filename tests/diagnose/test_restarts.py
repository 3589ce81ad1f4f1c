"""What restarts cost, of hand-made saves, restores and lives of processes with known times."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from ckptprof.diagnose.restarts import JobRestarts, find_restarts
from ckptprof.model import Checkpoint, Gap, Interval, Kind, Level, Pattern, Run, Status, Writer

SECOND = 1_000_000_000
T0 = 1_700_000_000 * SECOND
STEP_SECONDS = 0.5


def at(seconds: float) -> int:
    """Return an instant so many seconds after the start of the record."""
    return T0 + round(seconds * SECOND)


def save(step: int | None, seconds: float, pid: int, **changes: object) -> Checkpoint:
    """Return a save of 2 s, in which training was blocked for all of it, by one process."""
    return event(Kind.SAVE, step, seconds, 2.0, pid, **{"stall_ns": 2 * SECOND, **changes})


def restore(step: int, seconds: float, pid: int, **changes: object) -> Checkpoint:
    """Return a restore of 3 s by one process."""
    return event(Kind.RESTORE, step, seconds, 3.0, pid, **changes)


def event(kind: Kind, step: int | None, seconds: float, length: float, pid: int, **changes: object) -> Checkpoint:
    """Return a checkpoint of train.py, changed as told."""
    values: dict[str, object] = {
        "id": round(seconds), "uid": f"{kind.value}-{seconds}", "kind": kind, "job": f"train.py-{pid}",
        "framework": None, "step": step, "ranks": 1, "start_ns": at(seconds), "end_ns": at(seconds + length),
        "bytes": 10**9, "files": 1, "path": f"/ckpt/step_{step}.pt", "pattern": Pattern(class_=None),
        "writers": (Writer(pid=pid, comm="python", bytes=10**9, role="trainer"),), "level": Level.POLL,
        "limitations": (), "evidence": (), "confidence": 1.0,
    }  # fmt: skip
    return Checkpoint(**(values | changes))  # type: ignore[arg-type]  # checked by name at run time


def found(
    *checkpoints: Checkpoint, lives: Mapping[int, tuple[float, float]], gaps: tuple[Gap, ...] = ()
) -> list[JobRestarts]:
    """Return the restarts; `lives`: first and last sign of life of each process, in seconds."""

    def lives_of(pid: int, since_ns: int, until_ns: int) -> list[Interval]:
        if pid not in lives:
            return []
        start_ns, end_ns = (max(since_ns, min(at(seconds), until_ns)) for seconds in lives[pid])
        return [Interval(start_ns, end_ns)] if start_ns < end_ns else []

    return find_restarts(checkpoints, lives_of, gaps)


LIVES = {1: (-20.0, 130.0), 2: (160.0, 400.0)}
CHILD = (Writer(pid=9, comm="python", bytes=10**9, role="child"),)
KILLED = (
    save(100, 0, 1),
    save(200, 52, 1),  # 50 s of training after the one before
    save(300, 104, 1),  # complete at 106, killed at 130
    restore(300, 180, 2),
    save(400, 245, 2),  # 50 s of training: the first step was at 195
    save(500, 297, 2),
)


def test_each_phase_of_a_restart() -> None:
    """Lost work, and the time until the next process, until it restored, and until it trained."""
    (job,) = found(*KILLED, lives=LIVES)
    (one,) = job.restarts

    assert (one.job, one.save, one.restore, one.step) == ("train.py-2", 104, 180, 300)
    assert (one.ended_ns, one.started_ns, one.resumed_ns) == (at(130), at(160), at(195))
    assert one.redone_seconds == 24.0  # 104 to 130, without the save
    phases = (one.waiting_seconds, one.starting_seconds, one.restoring_seconds, one.warming_seconds)
    assert phases == (30.0, 20.0, 3.0, 12.0)
    assert one.down_seconds == sum(phases)
    assert not one.in_gap


def test_evaluation_beside_the_restarted_job() -> None:
    """It reads a save before the job saves again."""
    (job,) = found(*KILLED, restore(300, 200, 7, job="eval.py-7"), lives={**LIVES, 7: (190.0, 210.0)})

    assert [one.resumed_ns for one in job.restarts] == [at(195)]


def test_share_of_time_well_used() -> None:
    """From the first sign of life to the end of the last save, without redone and missing training, and stalls."""
    (job,) = found(*KILLED, lives=LIVES)

    assert job.observed_seconds == 319.0
    assert (job.redone_seconds, job.down_seconds, job.blocked_seconds) == (24.0, 65.0, 10.0)
    assert job.used_share == pytest.approx(1 - 99 / 319)
    assert [(one.month, one.restarts, one.down_seconds) for one in job.months] == [("2023-11", 1, 65.0)]


def test_what_was_not_observed_is_unknown() -> None:
    """Without timelines no end, start or lost work; without steps no first step."""
    (job,) = found(*KILLED, lives={})
    (one,) = job.restarts
    unnamed = [
        save(None, 104, 1, path="/ckpt/last.pt"),
        restore(300, 180, 2, path="/ckpt/last.pt"),
        save(None, 245, 2, path="/ckpt/last.pt"),
    ]
    ((other,),) = [job.restarts for job in found(*unnamed, lives=LIVES)]

    assert (one.ended_ns, one.started_ns, one.redone_seconds, one.down_seconds) == (None, None, None, None)
    assert one.warming_seconds == 12.0
    assert job.used_share is None
    assert (other.resumed_ns, other.warming_seconds, other.down_seconds) == (None, None, 53.0)


def test_a_job_that_dies_twice_before_it_saves() -> None:
    """The second time only what it trained since its first step is lost; without a save the program decides."""
    lives = {**LIVES, 2: (160.0, 250.0), 3: (255.0, 500.0)}
    ones = (*KILLED[:3], restore(300, 180, 2), restore(300, 270, 3), save(400, 340, 3), save(500, 392, 3))
    (job,) = found(*ones, lives=lives)

    assert [(one.save, one.restore) for one in job.restarts] == [(104, 180), (104, 270)]
    assert [one.redone_seconds for one in job.restarts] == [24.0, 67.0]
    assert job.restarts[1].resumed_ns == at(290)


def test_a_job_that_starts_over() -> None:
    """A launcher starts new processes, and they do not restore: all that was learned since the first step is lost."""
    again = (save(100, 245, 2, job="train.py-1"), save(200, 297, 2, job="train.py-1"))
    (job,) = found(*KILLED[:3], *again, lives={**LIVES, 1: (-60.0, 130.0)})
    (one,) = job.restarts

    assert (one.save, one.restore, one.step, one.restoring_seconds) == (None, None, 0, None)
    assert (one.ended_ns, one.started_ns, one.resumed_ns) == (at(130), at(160), at(195))
    assert (one.redone_seconds, one.waiting_seconds, one.warming_seconds) == (174.0, 30.0, 35.0)  # -50 to 130
    assert (one.down_seconds, job.observed_seconds) == (65.0, 349.0)


def test_a_life_that_starts_over_between_a_save_and_its_restore() -> None:
    """What it learned is lost, what the job had learned before is not: it goes on from there."""
    detour = (save(100, 245, 2), save(200, 297, 2))  # by the same program, ended at 320
    again = (restore(300, 360, 3), save(400, 420, 3), save(500, 472, 3))
    lives = {1: (-60.0, 130.0), 2: (160.0, 320.0), 3: (350.0, 600.0)}
    (job,) = found(*KILLED[:3], *detour, *again, lives=lives)

    assert job.names == ("train.py-1", "train.py-2", "train.py-3")
    assert [(one.save, one.step) for one in job.restarts] == [(None, 0), (104, 300)]
    assert [one.redone_seconds for one in job.restarts] == [24.0, 121.0]  # 195 to 320, without two saves
    assert [one.waiting_seconds for one in job.restarts] == [30.0, 30.0]


def test_a_launcher_that_starts_its_ranks_again_twice() -> None:
    """torchrun: first they start over, then they go on from what the first ones saved; only rank 0 saves."""
    ranks = [(Writer(pid=pid, comm="python", bytes=10**9, role="trainer"),) for pid in (5, 6)]
    over = (save(100, 245, 3), save(200, 297, 3, path="/ckpt/step_100.pt"))  # killed at 310, rank 1 (4) at 311
    again = (restore(300, 340, 5, writers=ranks[0] + ranks[1]), save(400, 405, 5), save(500, 457, 5))
    ones = [msgspec.structs.replace(one, job="train.py-9", ranks=2) for one in (*KILLED[:3], *over, *again)]
    lives = {1: (-60.0, 130.0), 2: (-60.0, 130.1), 3: (131.0, 310.0), 4: (131.0, 311.0), 5: (312.0, 600.0)}
    (job,) = found(*ones, lives={**lives, 6: (312.5, 600.0), 9: (-70.0, 600.0)})

    assert [(one.save, one.step, one.ended_ns) for one in job.restarts] == [(None, 0, at(130)), (104, 300, at(310))]
    assert [one.redone_seconds for one in job.restarts] == [24.0, 111.0]  # 104 to 130; 195 to 310; without saves
    assert [one.waiting_seconds for one in job.restarts] == [1.0, 2.0]
    assert [one.down_seconds for one in job.restarts] == [65.0, 45.0]


def test_a_restore_that_was_not_observed() -> None:
    """The steps of the new processes go on from the last save."""
    ones = (*KILLED[:3], save(400, 245, 2, job="train.py-1"), save(500, 297, 2, job="train.py-1"))
    ((one,),) = [job.restarts for job in found(*ones, lives=LIVES)]

    assert (one.save, one.restore, one.step) == (104, None, 300)
    assert (one.redone_seconds, one.down_seconds, one.resumed_ns) == (24.0, 65.0, at(195))


def test_the_save_that_a_restart_goes_on_from_counts() -> None:
    """A save that was cut off, and one that the restart tried in vain, are no state to go on from."""
    cut = save(400, 124, 1, status=Status.INCOMPLETE)
    tried = (restore(300, 180, 2), restore(200, 184, 2))
    ((one,),) = [job.restarts for job in found(*KILLED[:3], cut, *tried, *KILLED[4:], lives=LIVES)]

    assert (one.save, one.restore, one.step) == (52, 180, 200)
    assert (one.restoring_ns, one.restored_ns) == (at(180), at(187))
    assert one.redone_seconds == 78.0 - 2.0 - 2.0 - 2.0  # 52 to 130, without three saves


@pytest.mark.parametrize(
    ("checkpoints", "lives"),
    [
        # evaluation, while training goes on
        (
            (*KILLED[:3], restore(300, 180, 2, job="eval.py-2"), save(400, 245, 1)),
            {1: (-20.0, 400.0), 2: (160.0, 200.0)},
        ),
        # by a process of the job itself, which was never sampled
        ((*KILLED[:3], restore(300, 180, 2), save(400, 245, 1)), {1: (-20.0, 400.0)}),
        # after the end of the job
        ((*KILLED[:3], restore(300, 180, 2, job="eval.py-2")), LIVES),
        # fine-tuning, by the same program
        ((*KILLED[:3], restore(300, 180, 2), save(10, 245, 2, path="/tuned/step_10.pt")), LIVES),
        # of what nobody was seen to save
        ((*KILLED[:3], restore(300, 180, 2, path="/ckpt/base.pt"), save(400, 245, 2)), LIVES),
        # in the process that saved
        ((*KILLED[:3], restore(300, 180, 1), save(400, 245, 1)), {1: (-20.0, 400.0)}),
        # the same program is run again, by another launcher
        ((*KILLED[:3], save(100, 245, 2)), LIVES),
        # beside the processes that saved before, or it is not known when they ended
        ((*KILLED[:3], save(100, 245, 2, job="train.py-1")), {**LIVES, 1: (-20.0, 400.0)}),
        ((*KILLED[:3], save(100, 245, 2, job="train.py-1")), {2: (160.0, 400.0)}),
        # an export after the training, and a child that writes
        ((*KILLED[:3], save(300, 245, 2, job="train.py-1", path="/export/model.pt")), LIVES),
        ((*KILLED[:3], save(400, 245, 2, job="train.py-1", writers=CHILD)), LIVES),
        # of another job at the same meeting place
        (
            (
                *(save(100, 104, 1, run=Run(key="rendezvous:a:29500", scheduler="rendezvous")),),
                restore(100, 180, 2, run=Run(key="rendezvous:a:29500", scheduler="rendezvous")),
                save(10, 245, 2, path="/tuned/10.pt", run=Run(key="rendezvous:a:29500", scheduler="rendezvous")),
            ),
            LIVES,
        ),
    ],
)
def test_what_is_no_restart(checkpoints: tuple[Checkpoint, ...], lives: Mapping[int, tuple[float, float]]) -> None:
    """Evaluation, another job that begins with a save of this one, and a base model cost nothing."""
    assert found(*checkpoints, lives=lives) == []


def test_a_job_of_slurm_keeps_its_key() -> None:
    """Whatever its folders are called; in an object store, too, where the restore names no save."""
    runs = [Run(key=f"slurm:/7.{number}", scheduler="slurm", job="7", restart=number) for number in range(2)]
    first = [save(300, 104, 1, path=None, run=runs[0], job="slurm-7")]
    again = [restore(300, 180, 2, path=None, run=runs[1], job="slurm-7"), save(9, 245, 2, path="/x", run=runs[1])]
    ((one,),) = [job.restarts for job in found(*first, *again, lives=LIVES)]

    assert (one.redone_seconds, one.down_seconds) == (24.0, 53.0)


def test_saves_of_children_do_not_end_the_job() -> None:
    """A child that writes ends with its save: the end of the trainer is unknown, unless it restored itself."""
    lives = {**LIVES, 9: (100.0, 106.0)}
    ((one,),) = [job.restarts for job in found(save(300, 104, 1, writers=CHILD), *KILLED[3:], lives=lives)]
    ones = (*KILLED[:4], save(400, 245, 2, writers=CHILD), restore(400, 440, 3), save(500, 490, 3, writers=CHILD))
    (job,) = found(*ones, lives={**lives, 3: (430.0, 600.0)})

    assert one.ended_ns is None
    assert [each.ended_ns for each in job.restarts] == [at(130), at(400)]


def test_a_gap_of_the_record_is_named() -> None:
    """The job may have ended later than its last sign of life; samples lost somewhere in a session are no gap."""
    gaps = [Gap(at(129), at(150), "killed"), Gap(at(0), at(500), "lost", 7), Gap(at(10), at(20), "killed")]
    every = [found(*KILLED, lives=LIVES, gaps=(gap,))[0].restarts[0].in_gap for gap in gaps]

    assert every == [True, False, False]
