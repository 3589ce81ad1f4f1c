"""A process that was described as it ended is of the job of its parent."""

from __future__ import annotations

from ckptprof.detect.jobs import JobBook
from ckptprof_collectors.samples import ProcessInfo

RANK = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}


def test_a_fork_without_memory_is_what_its_parent_is() -> None:
    """No command line, no environment, no mappings: the name alone is left of it."""
    jobs = JobBook()
    jobs.learn(ProcessInfo(50, 500, 1, 0, "torchrun", "torch.distributed.run", ("torch",), {}, None))
    jobs.learn(ProcessInfo(100, 1000, 50, 0, "python", "train.py", ("torch",), RANK, None))
    jobs.learn(ProcessInfo(200, 2000, 100, 0, "python", "python", (), {}, None))

    assert jobs.job_of((200, 2000)) == jobs.job_of((100, 1000))
    assert jobs.rank((200, 2000)) == 1
