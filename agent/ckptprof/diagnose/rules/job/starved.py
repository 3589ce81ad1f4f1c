"""The writing thread was ready to run, but had no processor."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import spent
from ckptprof.diagnose.sight import look
from ckptprof.model import Checkpoint, Kind
from ckptprof.verdicts import Limit

_MOST = 0.5  # of the processors: a job that used less left them to others


def applies(_checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> Spent | None:
    """Return what shows it."""
    return spent(accounts, Limit.CPU)


def _of_whom(checkpoint: Checkpoint) -> str | None:
    """Return what to do where the job itself is not known to have had most of the processors; None if it had."""
    used = look(checkpoint).used_share
    if used is not None and used >= _MOST:
        return None
    others = "run fewer jobs beside it, reserve cores for it (Slurm `--cpus-per-task`, `cpuset.cpus`), raise `cpu.max`"
    if used is not None:
        return f"other jobs of this host, or a quota, had the CPUs: {others}"
    is_restore = checkpoint.kind is Kind.RESTORE
    own = "start data loader workers after the restore" if is_restore else "fewer data loader workers"
    return f"who had the CPUs was not seen: if its own threads, {own}; if other jobs or a quota, {others}"


RULE = Rule(
    name="starved",
    limits=(Limit.CPU,),
    applies=applies,
    exclusion="the thread ran",
    remedy=(
        "leave the writer a core: fewer data loader workers, OMP_NUM_THREADS below the cores, more CPUs for "
        "the job (Slurm `--cpus-per-task`, a higher `cpu.max`)"
    ),
    reference="proc_pid_schedstat, sched(7)",
    without="with a CPU free",
    remedy_of_restore=(
        "leave the reader a core: start data loader workers after the restore, OMP_NUM_THREADS below "
        "the cores, more CPUs"
    ),
    instead=_of_whom,
)
