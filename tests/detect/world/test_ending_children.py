"""A process that was described as it ended is of the job of its parent."""

from __future__ import annotations

import pytest

from ckptprof.detect.world.jobs import Jobs
from ckptprof_collectors.samples import ProcessInfo

RANK = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(("program", "runtimes"), [("python", ()), ("train.py", ("torch",)), ("train.py", ())])
def test_a_fork_without_memory_is_what_its_parent_is(program: str, runtimes: tuple[str, ...]) -> None:
    """The name alone is left of it, or whatever was read before it ended: its command line, its mappings."""
    jobs = Jobs()
    jobs.observe(ProcessInfo(50, 500, 1, 0, "torchrun", "torch.distributed.run", ("torch",), {}, None))
    jobs.observe(ProcessInfo(100, 1000, 50, 0, "python", "train.py", ("torch",), RANK, None))
    jobs.observe(ProcessInfo(200, 2000, 100, 0, "python", program, runtimes, {}, None))

    assert jobs.job_of((200, 2000)) == jobs.job_of((100, 1000))
    assert jobs.rank((200, 2000)) == 1


@pytest.mark.parametrize(("cgroup", "kept"), [(None, True), ("/job", False)])
def test_who_is_described_as_it_ends_keeps_what_it_was(cgroup: str | None, kept: bool) -> None:  # noqa: FBT001 - a case
    """Its last save would be one of a process without any library; one that lives may have become another program."""
    jobs = Jobs()
    jobs.observe(ProcessInfo(100, 1000, 50, 0, "python", "train.py", ("jax",), {}, "/job"))
    jobs.observe(ProcessInfo(100, 1000, 50, 0, "python", "python", (), {}, cgroup))

    info = jobs.info((100, 1000))
    assert info is not None
    assert (info.program, info.runtimes) == (("train.py", ("jax",)) if kept else ("python", ()))
