"""What joins a checkpoint with those of other nodes, on a stage where the truth is declared."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.detect.stage import MIB, Stage, changed, play

from ckptprof.model import Clock, Place
from ckptprof_collectors.samples import ClientSample, ClockSample, FileFact, Frame, MountInfo, Sample

NFS = MountInfo(1, 8, 1, "/", "/ckpt", "nfs4", "filer:/x", None, "filer")
STEP = "/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0"


@pytest.mark.parametrize(
    ("jobs", "keys"),
    [(("4711", "4711"), ["slurm:/4711.0@node-1:29500"]), ((None, None), ["rendezvous:node-1:29500"])],
    ids=["of Slurm", "of nobody"],
)
def test_a_save_of_several_ranks_has_the_key_of_their_run(jobs: tuple[str | None, ...], keys: list[str]) -> None:
    """The same as on each other node."""
    stage = Stage()
    for rank, job in enumerate(jobs):
        environment = {"RANK": str(rank), "WORLD_SIZE": "64", "MASTER_ADDR": "node-1.example", "MASTER_PORT": "29500"}
        environment |= {"SLURM_JOB_ID": job, "SLURM_STEP_ID": "0"} if job is not None else {}
        actor = stage.process(100 + rank, environment=environment, cgroup=STEP if job is not None else "/")
        stage.write(actor, f"/ckpt/step_7/rank_{rank}.pt", 2.02, 1.0, 300 * MIB)
    found = stage.play(8)

    assert [(one.run.key, one.run.ranks) for one in found if one.run is not None] == [(key, 64) for key in keys]


def test_a_job_of_one_node_has_none() -> None:
    """Nobody else has a part of it."""
    stage = Stage()
    stage.write(stage.process(), "/ckpt/step_7.pt", 2.02, 1.0, 300 * MIB)
    (save,) = stage.play(8)

    assert save.run is None


def _told(stage: Stage, mount: MountInfo = NFS, **of_facts: Any) -> list[Frame]:
    """Return the frames of a stage on such a mount, with more said of its files."""

    def change(sample: Sample) -> Sample:
        return msgspec.structs.replace(sample, **of_facts) if isinstance(sample, FileFact) else sample

    stage.extra.append((0.01, mount))
    return changed(stage.frames(8), change)


@pytest.mark.parametrize("path", ["/ckpt/step_7.pt", "/ckpt/step_7/model.pt"])
def test_a_save_lies_in_its_folder(path: str) -> None:
    """As its file system numbers it: that of its files, or of the one."""
    stage = Stage()
    stage.write(stage.process(), path, 2.02, 1.0, 300 * MIB)
    (save,) = play(stage.header(), _told(stage, folder_inode=131))

    assert save.place == Place(key="nfs:filer:/x:131", shared=True)


def test_a_save_lies_where_its_client_says() -> None:
    """That of BeeGFS knows what its mounts do not."""
    stage = Stage()
    stage.write(stage.process(), "/ckpt/step_7.pt", 2.02, 1.0, 300 * MIB)
    stage.extra.append((0.02, ClientSample(8, 1, "beegfs 8.3.1", file_system="7d1c-0B")))
    mount = MountInfo(1, 8, 1, "/", "/ckpt", "beegfs", "beegfs_nodev", None, None)
    (save,) = play(stage.header(), _told(stage, mount, folder_inode=131))

    assert save.place == Place(key="beegfs:7d1c-0B:131", shared=True)


@pytest.mark.parametrize("inode", [131, None], ids=["looked at", "not looked at"])
def test_the_folder_of_folders_is_told_by_those(inode: int | None) -> None:
    """Its files lie in none of them."""
    stage = Stage()
    actor = stage.process()
    for rank in (0, 1):
        stage.write(actor, f"/ckpt/step_7/rank_{rank}/model.pt", 2.02 + rank, 0.9, 300 * MIB)
    folder = FileFact(
        actor.pid, actor.info.start_ticks, 2049, 7, "/ckpt/step_7/rank_0", 0, is_directory=True, birth_ns=None,
        modified_ns=1, changed_ns=1, accessed_ns=None, magic=None, folder_inode=inode,
    )  # fmt: skip
    stage.extra += [(0.01, NFS), (4.5, folder)]
    (save,) = stage.play(8)

    assert save.path == "/ckpt/step_7"
    assert save.place == (Place(key="nfs:filer:/x:131", shared=True) if inode else None)


def test_a_save_without_a_look_at_its_folder_has_no_place() -> None:
    """Older recordings do not tell it, nor does a clock that nobody may ask."""
    stage = Stage()
    stage.write(stage.process(), "/ckpt/step_7.pt", 2.02, 1.0, 300 * MIB)
    (save,) = play(stage.header(), _told(stage))

    assert (save.place, save.clock) == (None, None)


def test_a_save_has_the_clock_that_its_times_are_of() -> None:
    """As far as it may be off when they are told."""
    stage = Stage()
    stage.write(stage.process(), "/ckpt/step_7.pt", 2.02, 1.0, 300 * MIB)
    stage.extra.append((0.01, ClockSample(synchronised=True, max_error_us=1000)))
    (save,) = stage.play(8)

    assert save.clock is not None
    assert save.clock.bound_ns is not None
    assert (save.clock.synchronised, 1_000_000 < save.clock.bound_ns < 6_000_000) == (True, True)
    assert save.clock != Clock(synchronised=True, bound_ns=1_000_000)
