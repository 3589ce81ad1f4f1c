"""What the environment of a process shows of its job: its rank, the number of ranks, and where they meet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ckptprof.frameworks.program_names import RANK_VARIABLES
from ckptprof.frameworks.runkeys import is_local_host, user_run_name

_PLACE_VARIABLES = (
    *(name for name, _ in RANK_VARIABLES),
    "LOCAL_RANK",
    "GROUP_RANK",
    "NODE_RANK",
    "WORLD_SIZE",
    "SLURM_PROCID",
)


def first_number(environment: Mapping[str, str], names: Iterable[str]) -> int | None:
    """First of the variables that is a plain number; None: none is."""
    if not environment:  # most processes have none of the retained variables
        return None
    for name in names:
        value = environment.get(name, "")
        if value.isascii() and value.isdigit() and len(value) < 10:
            return int(value)
    return None


def rank_of(environment: Mapping[str, str]) -> int | None:
    """Rank of the process; None: unknown."""
    rank = first_number(environment, (name for name, _ in RANK_VARIABLES))
    if rank is not None:
        return rank
    if first_number(environment, ("LOCAL_RANK",)) is not None and not first_number(
        environment, ("NODE_RANK", "GROUP_RANK")
    ):
        return first_number(environment, ("LOCAL_RANK",))  # Lightning: its launcher sets RANK after they have started
    return first_number(environment, ("SLURM_PROCID",))


def size_of(environment: Mapping[str, str]) -> int | None:
    """Count the ranks of the job; None: unknown."""
    size = first_number(environment, (size for _, size in RANK_VARIABLES if size))
    if size is not None:
        return size
    # a batch script has the number of tasks, too, but runs none of them itself
    if slurm_step(environment) is None and first_number(environment, ("SLURM_PROCID",)) == 0:
        return None
    return first_number(environment, ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"))


def local_size_of(environment: Mapping[str, str]) -> int:
    """Count the ranks that its launcher started on this host; 1 if unknown."""
    return first_number(environment, ("LOCAL_WORLD_SIZE",)) or 1


def slurm_step(environment: Mapping[str, str]) -> int | None:
    """Step number of the job that the process is a task of; None for its batch script."""
    # Slurm's own steps have ten digits, which is no number here (slurm.h: SLURM_BATCH_SCRIPT, SLURM_EXTERN_CONT)
    return first_number(environment, ("SLURM_STEP_ID", "SLURM_STEPID"))


def is_rank(environment: Mapping[str, str]) -> bool:
    """Whether it was started as one of several that meet; a job of one task is known by its tree as well."""
    if (
        first_number(environment, (name for name, _ in RANK_VARIABLES)) is not None
        or user_run_name(environment) is not None
    ):
        return True
    return (size_of(environment) or 1) > 1 and first_number(environment, ("SLURM_PROCID",)) is not None


def rank_place(environment: Mapping[str, str]) -> tuple[str | None, ...]:
    """Variables that are equal for a rank and its wrapper, and differ between two ranks."""
    return tuple(environment.get(name) for name in _PLACE_VARIABLES)


def meeting_place(environment: Mapping[str, str], cgroup: str | None) -> tuple[str, ...] | None:
    """Where the ranks of the job meet, equal for all; None: unknown. Local addresses differ by container."""
    port = environment.get("MASTER_PORT")
    if port and "RANK" in environment:
        host = environment.get("MASTER_ADDR", "")
        return ("port", cgroup or "" if is_local_host(host) else host, port)
    coordinator = environment.get("JAX_COORDINATOR_ADDRESS") or environment.get("COORDINATOR_ADDRESS")
    if coordinator and "JAX_PROCESS_ID" in environment:
        host = coordinator.rpartition(":")[0]
        return ("coordinator", cgroup or "" if is_local_host(host) else "", coordinator)
    for name in ("TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "FLUX_JOB_ID"):
        value = environment.get(name)
        if value and value != "none":
            return (name, value)
    step = slurm_step(environment)
    if "SLURM_JOB_ID" in environment and step is not None:
        return ("slurm", environment["SLURM_JOB_ID"], str(step))
    return None
