"""The checkpoints of a Slurm job and their cost, as a line for its AdminComment, which `sacct` stores with the job.

It contains numbers and our own words, no text of the job. Other tools use prefixes, too (jobstats: `JS1:`): comments
without our prefix are not changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

import msgspec

from ckptprof.cluster.answers import FleetAnswer
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


class SlurmJobCost(msgspec.Struct, frozen=True, kw_only=True):
    """What `cost.sql` answers of a Slurm job, over all of its runs and steps. None: unknown."""

    name: str  # cluster/number, or number
    saves: int
    restores: int
    incomplete: int
    bytes: int | None
    stall_seconds: float | None
    stalls_unknown: int
    gpu_seconds: float | None
    share: float | None
    gpu_share: float | None
    limit: Limit | None
    newest_step: int | None

    @property
    def id(self) -> JobId:
        """The job."""
        cluster, _, number = self.name.rpartition("/")
        return JobId(cluster or None, number)


class SlurmCosts(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of all Slurm jobs."""

    checkpoints: int
    rows: tuple[SlurmJobCost, ...]


def annotation_texts(rows: Iterable[SlurmJobCost]) -> dict[JobId, str]:
    """Return the comment on each Slurm job, by cluster and number."""
    ordered = sorted(rows, key=lambda one: (one.id.cluster or "", int(one.id.number)))
    return {one.id: _annotation_text(one) for one in ordered}


def _annotation_text(cost: SlurmJobCost) -> str:
    share = cost.share if cost.gpu_share is None else cost.gpu_share
    values: dict[str, object] = {
        "saves": cost.saves,
        "restores": cost.restores,
        "incomplete": cost.incomplete,
        "bytes": cost.bytes or 0,
        "stall_seconds": _rounded(cost.stall_seconds),
        "stalls_unknown": cost.stalls_unknown,
        "gpu_seconds": _rounded(cost.gpu_seconds),
        "share": None if share is None else f"{share:.4f}",
        "limit": None if cost.limit is None else cost.limit.value,
        "newest_step": cost.newest_step,
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
