"""Who reads saves back, of hand-made saves and restores."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest
from tests.diagnose.test_restarts import at, event, restore, save

from ckptprof.diagnose.reads import JobReads, SaveReads, find_reads
from ckptprof.diagnose.restarts import find_restarts
from ckptprof.model import Checkpoint, Kind, Moments, Sent, Status, Writer

FAR = Sent(destinations=())


@dataclass(frozen=True)
class Told:
    """The jobs that saved, and each save by its second."""

    jobs: list[JobReads]
    saves: dict[int, SaveReads]

    def uses(self, second: int) -> list[tuple[str, str]]:
        """Return the readers of a save and for what they read it."""
        return [(one.job, one.use) for one in self.saves[second].reads]


def told(*checkpoints: Checkpoint, files: dict[int, tuple[str, ...]] | None = None) -> Told:
    """Find the reads; each checkpoint has the one file that it is called by unless `files` has others."""
    paths = {one.id: (one.path or "",) for one in checkpoints if one.sent is None} | (files or {})
    jobs = find_reads(checkpoints, paths, find_restarts(checkpoints, lambda *_: []), range(1000))
    return Told(jobs, {one.save: one for job in jobs for one in job.saves})


def deleted(one: Checkpoint, seconds: float) -> Checkpoint:
    """Return the save, deleted then."""
    return msgspec.structs.replace(one, moments=Moments(deleted_ns=at(seconds)))


def test_train_evaluate_go_on_and_fine_tune() -> None:
    """Each restore is named for what its process did after it; a save has its first reader, delay and cache."""
    trained = (save(100, 0, 1), save(200, 50, 1), save(300, 100, 1))
    evaluated = restore(200, 152, 2, job="eval.py-2", cache="warm"), restore(200, 160, 3, job="eval.py-3", cache="cold")
    resumed = restore(300, 200, 4), save(400, 250, 4)
    tuned = restore(200, 300, 5, job="tune.py-5"), save(10, 350, 5, job="tune.py-5", path="/tuned/10.pt")
    found = told(*trained, *evaluated, *resumed, *tuned)

    assert [found.uses(second) for second in (0, 50, 100, 250)] == [
        [],
        [("eval.py-2", "read"), ("eval.py-3", "read"), ("tune.py-5", "branch")],
        [("train.py-4", "resume")],
        [],
    ]
    first = found.saves[50].reads[0]
    assert (first.restore, first.pids, first.delay_seconds, first.cache) == (152, (2,), 100.0, "warm")
    job, other = found.jobs
    assert (job.job, job.read_saves, job.read_share, job.unread_bytes) == ("train.py-4", 2, 0.5, 2 * 10**9)
    assert (other.job, other.read_saves) == ("tune.py-5", 0)


def test_what_is_gone_before_it_was_read() -> None:
    """Deleted, or written again: the age then; a save that was read before counts as read."""
    last = {"path": "/ckpt/last.pt"}
    ones = (deleted(save(1, 0, 1), 62), deleted(save(2, 50, 1), 300), save(3, 100, 1, **last), save(4, 150, 1, **last))
    found = told(*ones, restore(2, 200, 2))

    fates = [(one.gone, one.age_seconds) for one in found.saves.values()]
    assert fates == [("deleted", 60.0), ("deleted", 248.0), ("overwritten", 48.0), (None, None)]
    (job,) = found.jobs
    assert (job.read_saves, job.gone_unread, job.gone_unread_bytes, job.unread_bytes) == (1, 2, 2 * 10**9, 3 * 10**9)


def test_files_and_not_folders_decide() -> None:
    """Two saves of two files in one folder: the restore of one file reads that save; the small shared file is none."""
    folder = {"path": "/ckpt"}
    files = {
        0: ("/ckpt/model_1.pt", "/ckpt/config"), 50: ("/ckpt/model_2.pt", "/ckpt/config"),
        100: ("/ckpt/model_1.pt",), 150: ("/ckpt/model_2.pt", "/ckpt/config"), 200: ("/data/model_3.pt",),
    }  # fmt: skip
    ones = (save(1, 0, 1, **folder), save(2, 50, 1, **folder))
    reads = [restore(1, seconds, 2, **folder) for seconds in (100, 150, 200)]
    found = told(*ones, *reads, files=files)

    assert [[one.restore for one in each.reads] for each in found.saves.values()] == [[100], [150]]
    assert [one.gone for one in found.saves.values()] == [None, None]


def test_the_newest_save_of_a_file_is_read() -> None:
    """Not the one before, whose bytes are gone."""
    last = {"path": "/ckpt/last.pt"}
    found = told(save(1, 0, 1, **last), save(2, 50, 1, **last), restore(2, 100, 2, **last))

    assert [len(one.reads) for one in found.saves.values()] == [0, 1]


def test_a_trainer_that_reads_its_own_save_goes_on_with_it() -> None:
    """It reloads the best state at the end, or after a divergence: no other run has it."""
    found = told(save(1, 0, 1), save(2, 50, 1), restore(1, 100, 1), save(3, 150, 1))

    assert found.uses(0) == [("train.py-1", "reread")]


def test_an_evaluation_in_the_job_that_trains_is_no_branch() -> None:
    """A Slurm job has one name for all its processes: the trainer's next save is not the reader's."""
    name = {"job": "slurm-7"}
    reader = restore(1, 60, 2, **name)
    writers = (Writer(pid=1, comm="python", bytes=10**9, role="trainer"),)
    own = msgspec.structs.replace(reader, id=160, uid="r", writers=writers, start_ns=at(160), end_ns=at(163))
    found = told(save(1, 0, 1, **name), reader, save(2, 100, 1, **name), own)

    assert [use for _, use in found.uses(0)] == ["read", "reread"]


def test_of_an_object_store_the_job_is_all_that_is_known() -> None:
    """The newest save of the job is what was read; none is overwritten, as no name is known."""
    far = {"job": "slurm-7", "path": None, "sent": FAR}
    found = told(save(1, 0, 1, **far), save(2, 50, 1, **far), restore(2, 100, 2, **far), restore(2, 160, 3, path=None,
                 sent=FAR))  # fmt: skip

    assert [len(one.reads) for one in found.saves.values()] == [0, 1]
    assert [one.gone for one in found.saves.values()] == [None, None]


def test_copies() -> None:
    """An archive reads the save; a copy to the path of a save replaces it, and what reads that is no reader of it."""
    archived = event(Kind.COPY, 1, 60, 1.0, 7, job="tar-7")
    copied = event(Kind.COPY, 1, 70, 1.0, 8, moments=Moments(first_data_ns=at(70)))
    found = told(save(1, 0, 1), archived, copied, restore(1, 100, 2))

    assert found.uses(0) == [("tar-7", "copy")]
    assert (found.saves[0].gone, found.saves[0].age_seconds) == ("overwritten", 68.0)


def test_only_complete_saves_count() -> None:
    """One that was cut off can be read by no run."""
    found = told(save(1, 0, 1, status=Status.INCOMPLETE), save(2, 50, 1))

    assert list(found.saves) == [50]
    assert told(restore(1, 0, 1)).jobs == []


@pytest.mark.parametrize("written", [None, 3 * 10**9])
def test_what_was_written_for_nothing(written: int | None) -> None:
    """With staging and copies, where these were observed."""
    (job,) = told(save(1, 0, 1, written_bytes=written)).jobs

    assert job.unread_bytes == (written or 10**9)
