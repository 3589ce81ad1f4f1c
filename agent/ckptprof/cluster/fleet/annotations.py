"""The checkpoints of a Slurm job and their cost, as a line for its AdminComment, which `sacct` stores with the job.

It contains numbers and our own words, no text of the job. Other tools use prefixes, too (jobstats: `JS1:`): comments
without our prefix are not changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

import msgspec

from ckptprof.cluster.fleet.fleet_costs import row_of
from ckptprof.cluster.fleet.newest_steps import restorable
from ckptprof.cluster.fleet.runs import FleetAnswer, grouped, run_of, saves_and_restores
from ckptprof.cluster.model import ClusterCheckpoint
from ckptprof.model import Kind
from ckptprof.verdicts import Limit

PREFIX = "cp1:"  # sacctmgr of 22.05 changes comments to lower case


class JobId(NamedTuple):
    """How Slurm identifies a job."""

    cluster: str | None  # from the environment, which the user may change; None: unknown
    number: str


class Action(str, Enum):
    """The action on a job's comment."""

    WRITE = "write"  # no comment yet
    RENEW = "renew"  # ours, but older
    KEEP = "keep"  # equal, or covers more checkpoints
    FOREIGN = "foreign"  # of another tool
    UNKNOWN = "unknown"  # unknown to the accounting of this cluster


class Annotation(msgspec.Struct, frozen=True, kw_only=True):
    """The comment on one job."""

    cluster: str | None
    job: str  # its number; for an array task, that of the task (JobIDRaw)
    note: str
    comment: str | None = None  # current comment; None: Slurm was not queried, or the job is unknown
    action: Action | None = None  # None: Slurm was not queried
    error: str | None = None  # reason of a failed write


class Annotations(FleetAnswer, frozen=True, kw_only=True):
    """The comments on all Slurm jobs, by cluster and number."""

    is_written: bool  # else a preview
    not_queried: str | None  # why Slurm could not be queried for current comments
    jobs: tuple[Annotation, ...]


def annotation_texts(checkpoints: Iterable[ClusterCheckpoint]) -> dict[JobId, str]:
    """Return the comment on each Slurm job, over all of its runs and steps."""
    of_slurm = [one for one in saves_and_restores(checkpoints) if _job_of(one) is not None]
    return {
        job: _annotation_text(mine)
        for job, mine in sorted(grouped(of_slurm, _job_of).items(), key=_order)
        if job is not None
    }


def _order(item: tuple[JobId | None, object]) -> tuple[str, int]:
    job = item[0]
    return ("", 0) if job is None else (job.cluster or "", int(job.number))


def _job_of(one: ClusterCheckpoint) -> JobId | None:
    run = one.whole.run
    if run is None or run.scheduler != "slurm" or run.job is None or not run.job.isdecimal():
        return None
    cluster, slash, _ = run.key.removeprefix("slurm:").partition("@")[0].partition("/")
    return JobId(cluster if slash and run.key.startswith("slurm:") else None, run.job)


def _annotation_text(mine: Sequence[ClusterCheckpoint]) -> str:
    cost = row_of("", mine)
    saves = [one.whole for one in mine if one.whole.kind is Kind.SAVE]
    usable = [one for of_run in grouped(mine, run_of).values() for one in restorable(of_run)]
    newest = max(usable, key=lambda one: one.start_ns, default=None)
    limits = Counter(one.verdict.limit for one in saves if one.verdict is not None)
    limit: Limit | None = max(limits, key=limits.__getitem__, default=None)
    share = cost.share if cost.gpu_share is None else cost.gpu_share
    values: dict[str, object] = {
        "saves": cost.saves,
        "restores": cost.restores,
        "incomplete": cost.incomplete,
        "bytes": sum(one.bytes for one in saves),
        "stall_seconds": _rounded(cost.stall_seconds),
        "stalls_unknown": cost.stalls_unknown,
        "gpu_seconds": _rounded(cost.gpu_seconds),
        "share": None if share is None else f"{share:.4f}",
        "limit": None if limit is None else limit.value,
        "newest_step": None if newest is None else newest.step,
    }
    return " ".join([PREFIX, *(f"{name}={value}" for name, value in values.items() if value is not None)])


def _rounded(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds)


def action(note: str, now: str | None) -> Action:
    """Return the action for a current comment; `now` None: Slurm does not know the job.

    A comment that covers fewer checkpoints never replaces one that covers more.
    """
    if now is None:
        return Action.UNKNOWN
    if not now.strip():
        return Action.WRITE
    if not now.startswith(PREFIX):
        return Action.FOREIGN
    return Action.KEEP if now == note or _checkpoints(now) > _checkpoints(note) else Action.RENEW


def _checkpoints(note: str) -> int:
    values = dict(word.partition("=")[::2] for word in note.split())
    return sum(int(values[name]) for name in ("saves", "restores") if values.get(name, "").isdecimal())
