"""The writing thread was ready to run, but had no processor."""

from __future__ import annotations

from ckptprof.diagnose.causes import Cause, Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import due_to, spent
from ckptprof.diagnose.sight import number
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit

WITHOUT_CPU = (Cause.QUEUED, Cause.STARVED)


def applies(_checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> Spent | None:
    """Return what shows it."""
    largest = spent(accounts, Limit.SERIALIZE)
    return due_to(accounts, *WITHOUT_CPU) if largest is not None and largest.cause in WITHOUT_CPU else None


def _others(checkpoint: Checkpoint) -> str | None:
    """Return what to do where the whole job used less than half of the processors: others took more than it did."""
    measures = checkpoint.measures
    if measures is None or not measures.cores:
        return None
    busy = [number(one.busy) for one in measures.processes]
    known = [one for one in busy if one is not None]
    if not known or len(known) < len(busy) or sum(known) >= 0.5 * measures.cores:
        return None
    return (
        "other jobs of this host, or a quota, had the CPUs: run fewer jobs beside it, reserve cores for it (Slurm "
        "`--cpus-per-task`, `cpuset.cpus`), or raise `cpu.max`"
    )


RULE = Rule(
    name="starved",
    limits=(Limit.SERIALIZE,),
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
    instead=_others,
)
