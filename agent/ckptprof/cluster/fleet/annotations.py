"""What the checkpoints of a Slurm job did and cost, as a line for its AdminComment, which `sacct` keeps with the job.

Nothing in it is a text of the job's: numbers, and words of ours. Who else writes such comments has a prefix, too
(jobstats: `JS1:`): what does not begin with ours is left alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

import msgspec

from ckptprof.cluster.fleet.costs import row_of
from ckptprof.cluster.fleet.newest import restorable
from ckptprof.cluster.fleet.runs import Told, counted, grouped, run_of
from ckptprof.cluster.model import ClusterCheckpoint
from ckptprof.model import Kind
from ckptprof.verdicts import Limit

PREFIX = "cp1:"  # sacctmgr of 22.05 lets all of a comment be lower case


class JobId(NamedTuple):
    """A job of Slurm."""

    cluster: str | None  # as its environment says, which its user may have changed; None: that did not tell
    number: str


class Action(str, Enum):
    """What is to be done with a job's comment."""

    WRITE = "write"  # it has none
    RENEW = "renew"  # it is ours, and older
    KEEP = "keep"  # it says the same, or tells of more checkpoints
    TAKEN = "taken"  # it is another's
    UNKNOWN = "unknown"  # the accounting of this cluster does not tell of the job


class Annotation(msgspec.Struct, frozen=True, kw_only=True):
    """The note on one job."""

    cluster: str | None
    job: str  # its number; of a task of an array its own (JobIDRaw)
    note: str
    comment: str | None = None  # that it has now; None: Slurm was not asked, or does not know the job
    action: Action | None = None  # None: Slurm was not asked
    error: str | None = None  # why it could not be written


class Annotations(Told, frozen=True, kw_only=True):
    """The notes on all jobs of Slurm, by cluster and number."""

    is_written: bool  # else it was only asked what would be
    not_asked: str | None  # why Slurm could not be asked for present comments
    jobs: tuple[Annotation, ...]


def notes(checkpoints: Iterable[ClusterCheckpoint]) -> dict[JobId, str]:
    """Return the note on each job of Slurm; all of its runs and steps are in it."""
    of_slurm = [one for one in counted(checkpoints) if _job_of(one) is not None]
    return {job: _note(mine) for job, mine in sorted(grouped(of_slurm, _job_of).items(), key=_order) if job is not None}


def _order(item: tuple[JobId | None, object]) -> tuple[str, int]:
    job = item[0]
    return ("", 0) if job is None else (job.cluster or "", int(job.number))


def _job_of(one: ClusterCheckpoint) -> JobId | None:
    run = one.whole.run
    if run is None or run.scheduler != "slurm" or run.job is None or not run.job.isdecimal():
        return None
    cluster, slash, _ = run.key.removeprefix("slurm:").partition("@")[0].partition("/")
    return JobId(cluster if slash and run.key.startswith("slurm:") else None, run.job)


def _note(mine: Sequence[ClusterCheckpoint]) -> str:
    cost = row_of("", mine)
    saves = [one.whole for one in mine if one.whole.kind is Kind.SAVE]
    usable = [one for of_run in grouped(mine, run_of).values() for one in restorable(of_run)]
    newest = max(usable, key=lambda one: one.start_ns, default=None)
    limits = Counter(one.verdict.limit for one in saves if one.verdict is not None)
    limit: Limit | None = max(limits, key=limits.__getitem__, default=None)
    share = cost.share if cost.gpu_share is None else cost.gpu_share
    told: dict[str, object] = {
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
    return " ".join([PREFIX, *(f"{name}={value}" for name, value in told.items() if value is not None)])


def _rounded(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds)


def action(note: str, now: str | None) -> Action:
    """Return what is to be done with a comment as it is now; None: Slurm does not know the job.

    A note of fewer checkpoints is of a part of the job: it takes no other's place.
    """
    if now is None:
        return Action.UNKNOWN
    if not now.strip():
        return Action.WRITE
    if not now.startswith(PREFIX):
        return Action.TAKEN
    return Action.KEEP if now == note or _checkpoints(now) > _checkpoints(note) else Action.RENEW


def _checkpoints(note: str) -> int:
    told = dict(word.partition("=")[::2] for word in note.split())
    return sum(int(told[name]) for name in ("saves", "restores") if told.get(name, "").isdecimal())
