"""What joins a checkpoint with those of other nodes, on a stage where the truth is declared."""

from __future__ import annotations

import pytest
from tests.detect.stage import MIB, Stage

STEP = "/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0"


@pytest.mark.parametrize(
    ("jobs", "keys"),
    [
        (("4711", "4711"), ["slurm:/4711.0@node-1:29500"]),
        ((None, None), ["rendezvous:node-1:29500"]),
    ],
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

    assert [one.run.key for one in found if one.run is not None] == keys


def test_a_job_of_one_node_has_none() -> None:
    """Nobody else has a part of it."""
    stage = Stage()
    stage.write(stage.process(), "/ckpt/step_7.pt", 2.02, 1.0, 300 * MIB)
    (save,) = stage.play(8)

    assert save.run is None
