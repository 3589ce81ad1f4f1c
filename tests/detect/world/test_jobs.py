"""Which processes are one job: launchers, shells, pools and sweeps, by what processes look like under each of them."""

from __future__ import annotations

import itertools
import random
from typing import Any

import msgspec
import pytest

from ckptprof.detect.world.jobs import Jobs
from ckptprof_collectors.samples import ProcessInfo


def process(pid: int, parent_pid: int = 1, program: str = "train.py", **fields: Any) -> ProcessInfo:
    """Return a process that trains, unless `fields` say otherwise."""
    values: dict[str, Any] = {
        "pid": pid, "start_ticks": pid, "parent_pid": parent_pid, "uid": 0, "comm": "python3", "program": program,
        "runtimes": ("torch", "numpy"), "environment": {}, "cgroup": "/user.slice/session-1.scope", **fields,
    }  # fmt: skip
    return ProcessInfo(**values)


def shell(pid: int, parent_pid: int = 1, program: str = "bash", **environment: str) -> ProcessInfo:
    """Return a process that runs no Python."""
    return process(pid, parent_pid, program, comm=program, runtimes=(), environment=environment)


def launcher(pid: int, parent_pid: int = 1, program: str = "torchrun", **environment: str) -> ProcessInfo:
    """Return a Python program that trains nothing itself."""
    return process(pid, parent_pid, program, runtimes=(), environment=environment)


def ranks(first: int, parent_pid: int, count: int, port: str | None = "29500", **fields: Any) -> list[ProcessInfo]:
    """Return the ranks of one job as torchrun starts them."""
    environment = {"WORLD_SIZE": str(count), **fields.pop("environment", {})}
    if port is not None:
        environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return [
        process(first + rank, parent_pid, environment={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                **fields)
        for rank in range(count)
    ]  # fmt: skip


def jobs(*processes: ProcessInfo, of: list[ProcessInfo] | None = None) -> list[str]:
    """Return the jobs' names of the processes, or of some of them."""
    book = Jobs()
    for info in processes:
        book.observe(info)
    return [book.job_of((info.pid, info.start_ticks)) for info in of or processes]


def told(*groups: list[ProcessInfo], beside: tuple[ProcessInfo, ...] = ()) -> list[set[str]]:
    """Return the names that each group of processes gets, met in order of their pids."""
    everyone = sorted([*beside, *itertools.chain(*groups)], key=lambda info: info.pid)
    book = Jobs()
    for info in everyone:
        book.observe(info)
    names = {info.pid: book.job_of((info.pid, info.start_ticks)) for info in everyone}
    return [{names[info.pid] for info in group} for group in groups]


def test_two_torchruns_of_one_shell_are_two_jobs() -> None:
    """Each is named by its own launcher."""
    first, second = ranks(12, 11, 4), ranks(32, 31, 4, "29501")

    names = told(first, second, beside=(shell(10), launcher(11, 10), launcher(31, 10)))

    assert names == [{"train.py-11"}, {"train.py-31"}]


def test_two_torchruns_of_one_sweep_are_two_jobs() -> None:
    """What started them both is a part of neither."""
    sweep = launcher(10, program="sweep.py")
    first, second = ranks(12, 11, 2), ranks(32, 31, 2, "29501")

    names = told(first, second, beside=(sweep, launcher(11, 10), launcher(31, 10)))

    assert names == [{"train.py-11"}, {"train.py-31"}]


def test_two_agents_that_meet_at_one_place_are_one_job() -> None:
    """Two nodes of a job may be one host: ranks meet at the same address and port."""
    first = ranks(12, 11, 4)[:2]
    second = [process(30 + r, 29, environment={**ranks(12, 11, 4)[r].environment}) for r in (2, 3)]

    names = told(first, second, beside=(launcher(11), launcher(29)))

    assert names[0] == names[1]
    assert len(names[0]) == 1


@pytest.mark.parametrize("seed", range(5))
def test_the_name_does_not_depend_on_who_was_met_first(seed: int) -> None:
    """A launcher that is described last still names the job of its ranks."""
    family = [launcher(11), *ranks(12, 11, 4), process(20, 13, environment=ranks(12, 11, 4)[1].environment)]
    random.Random(seed).shuffle(family)  # noqa: S311 - an order, not a secret

    assert set(jobs(*family, of=[info for info in family if info.pid > 11])) == {"train.py-11"}


def test_a_rank_that_joins_late_joins() -> None:
    """Its job has its name already."""
    book = Jobs()
    early, late = ranks(12, 11, 4)[:3], ranks(12, 11, 4)[3]
    for info in (launcher(11), *early):
        book.observe(info)
    before = {book.job_of((info.pid, info.pid)) for info in early}
    book.observe(late)

    assert before == {book.job_of((late.pid, late.pid))}


@pytest.mark.parametrize("known", [True, False], ids=["shell-known", "shell-unknown"])
def test_a_loop_of_a_shell_that_starts_ranks_is_one_job(known: bool) -> None:  # noqa: FBT001 - a parameter
    """Siblings that carry ranks are one, whether their shell was ever described or not."""
    assert told(ranks(12, 11, 4, None), beside=(shell(11),) if known else ()) == [{"train.py-11"}]


def test_two_loops_of_one_shell_are_two_jobs() -> None:
    """By their ports; and without ports because no job has a rank twice."""
    by_port = told(ranks(12, 11, 4), ranks(22, 11, 4, "29501"), beside=(shell(11),))
    by_rank = told(ranks(12, 11, 4, None), ranks(22, 11, 4, None), beside=(shell(11),))

    assert by_port == [{"train.py-11"}, {"train.py-11:29501"}]
    assert by_rank == [{"train.py-11"}, {"train.py-22"}]


def test_a_job_that_follows_another_at_the_same_port_is_its_own() -> None:
    """The port is free again when all ranks have ended."""
    book = Jobs()
    first, second = ranks(12, 11, 2), ranks(22, 21, 2)
    for info in first:
        book.observe(info)
        book.job_of((info.pid, info.pid))
    for info in first:
        book.record_exit((info.pid, info.pid))
    for info in second:
        book.observe(info)

    assert {"train.py-21"} == {book.job_of((info.pid, info.pid)) for info in second}
    assert book.job_of((12, 12)) == "train.py-11"


@pytest.mark.parametrize(
    "variables",
    [
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
        ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
        ("JAX_PROCESS_ID", "JAX_NUM_PROCESSES"),
        ("FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
    ],
)
def test_ranks_under_mpirun_are_one_job_with_their_ranks(variables: tuple[str, str]) -> None:
    """A wrapper of shell for each rank, which carries the rank too, is no job of its own."""
    book = Jobs()
    book.observe(shell(11, program="mpirun"))
    for rank in range(4):
        environment = {variables[0]: str(rank), variables[1]: "4"}
        book.observe(shell(20 + rank, 11, "wrap.sh", **environment))
        book.observe(process(30 + rank, 20 + rank, environment=environment))

    assert {"train.py-11"} == {book.job_of((30 + rank, 30 + rank)) for rank in range(4)}
    assert [(book.rank((30 + rank, 30 + rank)), book.ranks((30 + rank, 30 + rank))) for rank in range(4)] == [
        (rank, 4) for rank in range(4)
    ]


def test_two_mpiruns_under_one_daemon_are_told_apart_by_their_name_space() -> None:
    """Each run of PMIx has its own."""

    def run(first: int, space: str) -> list[ProcessInfo]:
        return [
            process(first + rank, 11, environment={"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "2",
                                                   "PMIX_NAMESPACE": space})
            for rank in range(2)
        ]  # fmt: skip

    first, second = told(run(20, "prterun-a@1"), run(30, "prterun-b@1"), beside=(shell(11, program="prted"),))

    assert len(first) == len(second) == 1
    assert first != second


def test_the_tasks_of_a_slurm_step_are_one_job() -> None:
    """Children of slurmstepd, by Slurm's number."""
    tasks = [
        process(20 + rank, 11, environment={"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_PROCID": str(rank),
                                            "SLURM_NTASKS": "4"})
        for rank in range(4)
    ]  # fmt: skip

    assert told(tasks, beside=(shell(11, program="slurmstepd"),)) == [{"slurm-4711"}]


def test_two_trainings_of_one_batch_script_are_two_jobs() -> None:
    """They share Slurm's number, and neither is a rank of anything."""
    environment = {"SLURM_JOB_ID": "4711", "SLURM_PROCID": "0", "SLURM_NTASKS": "8"}
    first, second = [process(20, 11, environment=environment)], [process(30, 11, environment=environment)]

    names = told(first, second, beside=(shell(11, program="slurm_script"),))

    assert names == [{"slurm-4711"}, {"slurm-4711:train.py-30"}]


def test_a_torchrun_in_a_batch_script_bears_slurms_number() -> None:
    """Its agent is not another job that would take the name away."""
    slurm = {"SLURM_JOB_ID": "4711", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}
    members = ranks(20, 12, 4, environment=slurm)

    names = told([launcher(12, 11, **slurm)], members, beside=(shell(11, **slurm),))

    assert names == [{"slurm-4711"}, {"slurm-4711"}]


@pytest.mark.parametrize("program", ["train.py", "sweep.py"])
def test_trainings_that_a_sweep_starts_are_jobs_of_their_own(program: str) -> None:
    """A launcher that trains nothing itself is a part of neither."""
    sweep = launcher(10, program="tune.py")
    first, second = [process(20, 10, program)], [process(30, 10, program)]

    assert told(first, second, beside=(sweep,)) == [{f"{program}-20"}, {f"{program}-30"}]


@pytest.mark.parametrize("program", ["train.py", "tune.py"])
@pytest.mark.parametrize("inherited", [{}, {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0"}])
def test_a_sweep_that_has_pytorch_loaded_is_no_part_of_what_it_starts(program: str, inherited: dict[str, str]) -> None:
    """What was started anew and has no place among others is a job of its own; what is forked is not."""
    sweep = process(10, program="tune.py", environment=inherited)
    first, second = (
        [process(pid, 10, program, is_fork=False, environment=inherited)] for pid in (20, 30)
    )  # fmt: skip
    forked = [process(40, 10, "tune.py", is_fork=True, environment=inherited)]

    assert len(set.union(*told([sweep], first, second))) == 3
    assert told([sweep], forked)[0] == told([sweep], forked)[1]


def test_what_cannot_save_itself_is_of_the_script_above_its_shell() -> None:
    """A trainer runs dd(1) in a shell; what a shell runs without a script, or a script in that shell, is its own."""
    book = process(10), shell(11, 10, "sh"), shell(12, 11, "dd"), process(13, 11), shell(20), shell(21, 20, "dd")

    assert jobs(*book) == [*["train.py-10"] * 3, "train.py-13", "bash-20", "dd-21"]


def test_a_fork_is_of_the_job_of_its_program_in_any_language() -> None:
    """A trainer in C forks to save; what it starts anew is a job of its own."""
    fit, fork, other = (shell(pid, above, "fit") for pid, above in ((10, 1), (11, 10), (12, 10)))
    fork, other = (msgspec.structs.replace(one, is_fork=one is fork) for one in (fork, other))

    assert jobs(fit, fork, other) == ["fit-10", "fit-10", "fit-12"]


@pytest.mark.parametrize("program", ["multiprocessing.spawn", "multiprocessing.forkserver", "train.py"])
def test_what_a_process_pool_starts_belongs_to_its_parent(program: str) -> None:
    """Ranks of torch.multiprocessing.spawn carry no rank in their environment; savers and daemons neither."""
    children = [process(20 + number, 10, program) for number in range(4)]

    assert told([process(10)], children) == [{"train.py-10"}, {"train.py-10"}]
    assert told([launcher(10, program="train.py")], children) == [{"train.py-10"}, {"train.py-10"}]


def test_the_ranks_that_lightning_starts_from_rank_0_are_one_job() -> None:
    """Rank 0 has set its own variables after it began: they are not to be seen."""
    children = [
        process(20 + rank, 10, environment={"LOCAL_RANK": str(rank), "NODE_RANK": "0", "WORLD_SIZE": "3",
                                            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "41234"})
        for rank in (1, 2)
    ]  # fmt: skip
    book = Jobs()
    for info in (process(10), *children):
        book.observe(info)

    assert {"train.py-10"} == {book.job_of((pid, pid)) for pid in (10, 21, 22)}
    assert [book.rank((pid, pid)) for pid in (21, 22)] == [1, 2]


def test_the_deepspeed_launcher_and_accelerate_name_the_job_they_start() -> None:
    """A runner that starts a launcher that starts the ranks is one tree."""
    runner, launch = launcher(10, 5, "deepspeed"), launcher(11, 10, "deepspeed.launcher.launch")
    accelerate = launcher(40, 5, "accelerate")

    deep, fast = told(ranks(12, 11, 2), ranks(42, 40, 2, "29501"), beside=(shell(5), runner, launch, accelerate))

    assert (deep, fast) == ({"train.py-10"}, {"train.py-40"})


def test_one_port_in_two_containers_is_two_jobs() -> None:
    """An address of this host only means another one in each container."""
    first = ranks(12, 1, 2, cgroup="/kubepods/pod-a")
    second = ranks(22, 1, 2, cgroup="/kubepods/pod-b")

    names = told(first, second)

    assert [len(group) for group in names] == [1, 1]
    assert names[0] != names[1]


def test_a_writer_that_was_never_described_is_of_its_parents_job() -> None:
    """The trace says who started it; its own child is of the same job."""
    book = Jobs()
    book.observe(process(10, environment={"RANK": "2", "WORLD_SIZE": "4"}))
    book.record_traced((20, 20), "python3", 10)
    book.record_traced((30, 30), "python3", 20)

    assert book.job_of((20, 20)) == book.job_of((10, 10))
    assert book.rank((20, 20)) == 2
    assert book.job_of((30, 30)) == "pid-30"  # nobody knows whether pid 20 still is who it was


def test_a_shell_that_started_a_stranger_gives_it_no_job() -> None:
    """Only what a script starts works for it."""
    book = Jobs()
    book.observe(shell(10))
    book.record_traced((20, 20), "save", 10)

    assert book.job_of((20, 20)) == "pid-20"


@pytest.mark.parametrize("program", ["pkg.train", "python3"])
def test_a_module_names_its_job(program: str) -> None:
    """`python -m pkg.train` and `python -c` have names as well."""
    helper = process(20, 10, "multiprocessing.spawn")

    assert set(jobs(process(10, program=program), helper)) == {f"{program}-10"}


@pytest.mark.parametrize("shim", ["bash", "-bash", "timeout", "env"])
def test_a_job_is_named_by_what_trains_and_not_by_its_shim(shim: str) -> None:
    """A rank without a script of its own (`python -c`, `python -`) below a shell that carries its rank."""
    rank = {"RANK": "0", "WORLD_SIZE": "1"}
    book = Jobs()
    for info in (shell(10, 1, shim, **rank), process(11, 10, "python3", environment=rank)):
        book.observe(info)

    assert book.job_of((11, 11)) == "python3-10"


@pytest.mark.parametrize("runner", ["ckptprof", "conda"])
def test_what_a_python_program_only_runs_is_a_job_of_its_own(runner: str) -> None:
    """Also a trainer without any library; what else the runner started (another sampler) has no part in it."""
    helper = process(21, 20, f"{runner}: sampler", comm=f"{runner}:sample", runtimes=())
    trainer, restart = process(22, 20, runtimes=()), process(23, 22, runtimes=())
    names = jobs(launcher(20, 2, runner), helper, trainer, restart)

    assert names[2:] == ["train.py-22"] * 2
    assert names[1] != names[2]


@pytest.mark.parametrize("environment", [{}, {"RANK": "0", "WORLD_SIZE": "1", "MASTER_PORT": "29500"}])
def test_a_process_that_was_met_as_a_shell_is_named_by_what_it_becomes(environment: dict[str, str]) -> None:
    """A shell forks itself and becomes the program later: the job was asked for meanwhile, by who forked, too."""
    book = Jobs()
    for info in (shell(10, **environment), shell(11, 10, **environment)):
        book.observe(info)
    before = [book.job_of((pid, pid)) for pid in (11, 10)]
    book.observe(process(11, 10, "train.py", environment=environment))
    job = "train.py-10" if environment else "train.py-11"

    assert {name.partition("-")[0] for name in before} == {"bash"}
    assert book.job_of((11, 11)) == job
    assert book.job_of((10, 10)) == (job if environment else "bash-10")


def test_a_job_whose_script_was_not_known_at_first_is_named_by_it() -> None:
    """Described while it is executed, a process has no arguments yet; a child of it changes no name."""
    book = Jobs()
    names = []
    for info in (process(10, program="python"), process(11, 10, "worker.py"), process(10, program="train.py")):
        book.observe(info)
        names.append(book.job_of((10, 10)))

    assert names == ["python-10", "python-10", "train.py-10"]


@pytest.mark.parametrize("program", ["bash", "-bash"])
def test_what_a_shell_becomes_has_not_started_what_the_shell_had(program: str) -> None:
    """`bash -c "python train.py; python train.py"` runs the second one in its own place."""
    book = Jobs()
    first = process(5, 4, runtimes=())
    for info in (shell(4, program=program), first):
        book.observe(info)
    names = [book.job_of((5, 5))]
    book.observe(process(4, runtimes=()))
    names += [book.job_of((5, 5)), book.job_of((4, 4))]
    book.observe(first)  # it is described again

    assert [*names, book.job_of((5, 5))] == ["train.py-5", "train.py-5", "train.py-4", "train.py-5"]


def test_a_rank_that_joins_its_shell_names_their_job() -> None:
    """The shell was asked for first, because it had read something itself."""
    rank = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_PORT": "29500"}
    book = Jobs()
    book.observe(shell(10, **rank))
    assert book.job_of((10, 10)) == "bash-10"
    book.observe(process(11, 10, "python3", environment=rank))

    assert book.job_of((11, 11)) == book.job_of((10, 10)) == "python3-10"


def test_an_orphan_keeps_the_parent_that_it_had() -> None:
    """A launcher that ends hands its ranks to init; they stay one job."""
    book = Jobs()
    for info in (*ranks(12, 11, 2, None), *ranks(12, 1, 2, None)):
        book.observe(info)

    assert {"train.py-11"} == {book.job_of((pid, pid)) for pid in (12, 13)}


@pytest.mark.parametrize(
    ("others", "ended", "adopted"),
    [
        pytest.param((), (), True, id="who runs its program forked it"),
        pytest.param((process(11),), (), False, id="either of two may have"),
        pytest.param((process(11, 10, is_fork=True),), (), True, id="a fork of it is no second one"),
        pytest.param((process(9),), (9,), True, id="an earlier run has ended"),
        pytest.param((process(9, program="serve.py"),), (), True, id="another program"),
    ],
)
def test_a_fork_whose_parent_ended_before_it_was_met_is_of_the_job_of_its_program(
    others: tuple[ProcessInfo, ...], ended: tuple[int, ...], *, adopted: bool
) -> None:
    """Who forks twice leaves its child to init, or to what reaps for it; that never ran the program."""
    book = Jobs()
    for info in (shell(5, program="tini"), process(10, 5), *others):
        book.observe(info)
    for pid in ended:
        book.record_exit((pid, pid))
    book.observe(process(20, 5, is_fork=True))

    assert (book.job_of((20, 20)) == book.job_of((10, 10))) is adopted


@pytest.mark.parametrize(
    ("program", "size", "alone"),
    [
        pytest.param("train.py", 1, True, id="it says that it is alone"),
        pytest.param("multiprocessing.spawn", 2, True, id="a rank that was spawned named itself"),
        pytest.param("train.py", 2, False, id="it may start several ranks"),
    ],
)
def test_a_helper_of_who_named_itself_a_rank_is_of_its_job(program: str, size: int, *, alone: bool) -> None:
    """A process that writes for it inherits what the job has put into its environment after its start."""
    place = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(size), "MASTER_PORT": "29500"}
    book = Jobs()
    book.observe(process(10, program=program))
    book.observe(process(11, 10, "multiprocessing.spawn", environment=place))

    assert (book.job_of((11, 11)) == book.job_of((10, 10))) is alone
    assert (book.rank((11, 11)) is None) is alone


def test_thousands_of_short_lived_processes_leave_nothing_behind() -> None:
    """Every book is bounded."""
    book = Jobs()
    book.observe(process(10))
    for pid in range(100, 30_100):
        book.observe(process(pid, 10, environment={"RANK": str(pid), "WORLD_SIZE": "2", "MASTER_PORT": str(pid)}))
        book.job_of((pid, pid))
        book.record_exit((pid, pid))
        book.record_traced((pid + 50_000, 1), "python3", 10)

    sizes = [len(held) for held in (book._infos, book._current, book._traced, book._groups, book._group_by_name)]
    assert max(sizes) <= 20_001
    assert len(book._group_of) <= 40_001


def test_a_launcher_that_has_a_library_loaded_does_not_save_itself() -> None:
    """Torchrun has PyTorch loaded; a trainer that started no ranks, or is one, may save."""
    book = Jobs()
    starter, alone, workers = process(10), process(30), ranks(20, 10, 2)
    for info in (starter, alone, *workers):
        book.observe(info)

    started = [book.starts_ranks((info.pid, info.start_ticks)) for info in (starter, alone, *workers)]

    assert started == [True, False, False, False]
