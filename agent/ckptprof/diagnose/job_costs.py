"""The cost of a job's checkpoints: time blocked, GPU time, and the storage tier that their rate reaches."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ckptprof import figures
from ckptprof.diagnose import tiers
from ckptprof.diagnose.context import or_zero
from ckptprof.diagnose.tolerances import FIELD_MEAN_SHARE, FIELD_MOST_SHARE, SNIA_SHARE
from ckptprof.model import Checkpoint, Kind, Watched
from ckptprof.units import GIB, NS
from ckptprof.verdicts import DirectionCost, JobCost


def job_costs(checkpoints: Sequence[Checkpoint], watched: Watched | None = None) -> tuple[JobCost, ...]:
    """Return the cost of each job's checkpoints, the highest first; copies do not count.

    A run lasts from its first checkpoint until its next is due, but not beyond the end of the recording.
    """
    jobs: dict[str, list[Checkpoint]] = {}
    for one in checkpoints:
        if one.kind is not Kind.COPY:
            jobs.setdefault(one.job, []).append(one)
    found = [_job(job, mine, watched) for job, mine in jobs.items()]
    return tuple(sorted(found, key=lambda one: (-(one.stall_seconds or 0.0), one.job)))


def _job(job: str, mine: list[Checkpoint], watched: Watched | None) -> JobCost:
    mine = sorted(mine, key=lambda one: one.start_ns)
    stalls = figures.of_all(mine, figures.stall_seconds)
    stall = sum(stalls) if stalls else None
    run = _span(mine, stall, _recorded_until_ns(watched, mine[-1].start_ns))
    known, origin = _gpus(mine)
    share = min(1.0, stall / run) if stall is not None and run else None
    apart = figures.intervals_seconds(mine)
    background = [or_zero(one.cost.background_seconds) for one in mine if one.cost is not None]
    return JobCost(
        job=job,
        count=len(mine),
        run_seconds=run,
        stall_seconds=stall,
        background_seconds=sum(background) if background else None,
        stalls_unknown=len(mine) - len(stalls),
        gpus=known,
        gpus_from=origin,
        gpu_seconds=stall * known if stall is not None and known else None,
        share=share,
        exceeds_snia=share > SNIA_SHARE if share is not None else None,
        judgement=share_text(share) if share is not None else None,
        interval_seconds=figures.median(apart) if apart else None,
        saves=_direction([one for one in mine if one.kind is Kind.SAVE], known),
        restores=_direction([one for one in mine if one.kind is Kind.RESTORE], known),
    )


def saves_share(cost: JobCost) -> float | None:
    """Return the share of the run in which saves alone blocked a job; None for fewer than two saves."""
    if cost.saves is None or cost.saves.stall_seconds is None or not cost.run_seconds or cost.interval_seconds is None:
        return None
    return min(1.0, cost.saves.stall_seconds / cost.run_seconds)


def share_text(share: float) -> str:
    """Compare a share of the run with SNIA's 5 % and reported values, in words."""
    if share <= SNIA_SHARE:
        return "within SNIA's 5 %"
    if share <= FIELD_MEAN_SHARE:
        return "above SNIA's 5 %, below the field average of 12 %"
    if share <= FIELD_MOST_SHARE:
        return "above the field average of 12 %, below the reported maximum of 43 %"
    return "above the reported maximum of 43 %"


def _direction(mine: list[Checkpoint], gpus: int | None) -> DirectionCost | None:
    if not mine:
        return None
    lengths = figures.of_complete(mine, figures.duration_seconds)
    speeds = figures.of_complete(mine, figures.rate_bytes_per_second)
    speed = figures.median(speeds) if speeds else None
    each = speed / gpus if speed is not None and gpus else None
    stalls = figures.of_all(mine, figures.stall_seconds)
    shares = figures.of_complete(mine, lambda one: None if one.cost is None else one.cost.ceiling_share)
    durable = [one.cost.durable_on_return for one in mine if one.cost is not None]
    written = figures.of_complete(mine, lambda one: None if one.cost is None else one.cost.durable_bytes_per_second)
    return DirectionCost(
        count=len(mine),
        complete=len(figures.complete(mine)),
        seconds=sum(figures.of_all(mine, figures.duration_seconds)),
        stall_seconds=sum(stalls) if stalls else None,
        bytes=sum(one.bytes for one in mine),
        mean_seconds=sum(lengths) / len(lengths) if lengths else None,
        max_seconds=max(lengths, default=None),
        bytes_per_second=speed,
        gibibytes_per_second=speed / GIB if speed is not None else None,
        bytes_per_second_per_gpu=each,
        tier=tiers.word(mine[0].kind, each),
        ceiling_share=figures.median(shares) if shares else None,
        durable_known=sum(was is not None for was in durable),
        durable_on_return=sum(bool(was) for was in durable),
        durable_bytes_per_second=figures.median(written) if written else None,
    )


def _gpus(mine: Iterable[Checkpoint]) -> tuple[int | None, str | None]:
    known = [(one.cost.gpus, one.cost.gpus_from) for one in mine if one.cost is not None and one.cost.gpus]
    return max(known, key=lambda pair: pair[0] or 0, default=(None, None))


def _recorded_until_ns(watched: Watched | None, since_ns: int) -> float:
    """Return the end of the session of the sampler that recorded this time; infinite if not known."""
    ends = [] if watched is None else [one.start_ns for one in watched.gaps if not one.lost_samples]
    ends += [] if watched is None or watched.end_ns is None else [watched.end_ns]
    return min((one for one in ends if one >= since_ns), default=math.inf)


def _span(mine: list[Checkpoint], stall: float | None, until_ns: float) -> float | None:
    """Return the time from the first checkpoint to when the next save is due, at the usual interval.

    To the end of the last save there would be four saves in three intervals. It is at least the stall, which may
    start before the first save. None for restores alone: they start a run, and are no evidence about the rest.
    """
    if len(mine) < 2 or not any(one.kind is Kind.SAVE for one in mine):
        return None
    ends_ns = [float(one.end_ns - mine[0].start_ns) for one in mine]
    if mine[-1].kind is Kind.SAVE and (apart := figures.intervals_seconds(mine)):
        ends_ns.append(min(mine[-1].start_ns + figures.median(apart) * NS, until_ns) - mine[0].start_ns)
    length = max(max(ends_ns) / NS, stall or 0.0)
    return length if length > 0 else None
