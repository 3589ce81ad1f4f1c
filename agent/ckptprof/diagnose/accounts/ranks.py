"""The effect of several ranks: one that ends long after the others, or one that writes everything."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from ckptprof.diagnose.accounts.parts import STORED, Part
from ckptprof.diagnose.accounts.path import Rank, foremost, ranks, time_of
from ckptprof.diagnose.accounts.storage_waits import throttle
from ckptprof.diagnose.context import CheckpointContext, or_zero
from ckptprof.diagnose.tolerances import CLEARLY, LARGELY, MOMENT_SECONDS, MOST, NEARLY_ALL, PART, SLIGHT
from ckptprof.units import NS, percent, seconds, size
from ckptprof.verdicts import Limit

_AT_CPUS = (Part.USER, Part.COPY, Part.KERNEL, Part.CPU, Part.STARVED, Part.QUEUED)


@dataclass(frozen=True)
class LateRank:
    """A rank that ended long after the others."""

    seconds: float
    text: str
    contention_seconds: float  # seconds that the others would have waited longer if it ran alongside


@dataclass(frozen=True)
class SingleWriter:
    """A single writer among several ranks."""

    ranks: int
    workers: int  # that could work at once, limited by the processors
    text: str


def late_rank(context: CheckpointContext, asleep_share: float) -> LateRank | None:
    """Return the rank that ended long after the median of the others; None while storage was saturated."""
    found = ranks(context)
    mean = sum(one.bytes for one in found) / max(1, len(found))
    found = tuple(one for one in found if one.bytes >= SLIGHT * mean)
    if len(found) < 2:
        return None
    last, others = found[-1], found[:-1]
    late = (last.end_ns - statistics.median(one.end_ns for one in others)) / NS
    if late < max(MOMENT_SECONDS, PART * context.span) or _saturated(context, asleep_share):
        return None
    return LateRank(late, _why(late, last, others), _contention(context, last, others))


def _contention(context: CheckpointContext, last: Rank, others: tuple[Rank, ...]) -> float:
    """Estimate how much longer the others would have waited for storage and CPUs if the late rank ran alongside.

    Its share of the bytes is assumed to be transferred at the same rate. CPUs are shared if there are fewer of them
    than ranks.
    """
    theirs = sum(one.bytes for one in others)
    ended_ns = statistics.median(one.end_ns for one in others)
    apart = (last.end_ns - max(ended_ns, last.start_ns)) / max(1, last.end_ns - last.start_ns)
    share = min(last.bytes, statistics.median(one.bytes for one in others)) / theirs
    stored = statistics.median(_spent(context, one.pid, STORED) for one in others)
    busy = context.device.busy_seconds if context.device is not None else None
    if context.is_remote or busy is None or busy * theirs / (theirs + last.bytes) < MOST * stored:
        stored = 0.0
    cores = context.measures.cores
    is_oversubscribed = cores is not None and len(others) >= cores
    computed = statistics.median(_spent(context, one.pid, _AT_CPUS) for one in others) if is_oversubscribed else 0.0
    return apart * share * (stored + computed)


def _spent(context: CheckpointContext, pid: int, parts: tuple[Part, ...]) -> float:
    thread = foremost([one for one in context.measures.threads if one.pid == pid and one.end_ns > one.start_ns])
    return time_of(thread, thread.start_ns, thread.end_ns).parts.of(*parts) if thread is not None else 0.0


def _saturated(context: CheckpointContext, asleep_share: float) -> bool:
    """Check whether the ranks shared a device that was never idle: which of them ends last is then chance."""
    bound = throttle(context, context.span)
    reached = bound.share if bound is not None else or_zero(context.busy_of(context.device))
    return asleep_share >= MOST and reached >= LARGELY


def _why(late: float, last: Rank, others: tuple[Rank, ...]) -> str:
    text = f"one rank finished {seconds(late)} after the median of the others"
    bytes_ = statistics.median(one.bytes for one in others)
    start_delay = (last.start_ns - statistics.median(one.start_ns for one in others)) / NS
    if bytes_ and last.bytes >= CLEARLY * bytes_:
        return f"{text}, with {size(last.bytes)} instead of {size(bytes_)}"
    if start_delay >= MOST * late:
        return f"{text}, having started {seconds(start_delay)} later"
    return f"{text}, slower with the same number of bytes"


def single_writer(context: CheckpointContext) -> SingleWriter | None:
    """Return the single writer among several ranks of this host, None if several write."""
    ranks = context.ranks_here
    if ranks < 2 or not context.is_save:
        return None
    transferred = [one.bytes for one in context.checkpoint.writers] or [one.bytes for one in context.measures.processes]
    total = sum(transferred)
    if not total or max(transferred) < NEARLY_ALL * total:
        return None
    cores = context.measures.cores
    workers = min(ranks, cores) if cores and cores > 0 else ranks
    text = f"one of {ranks} ranks wrote {percent(max(transferred) / total)} of the bytes"
    idle = [one.busy for one in context.measures.processes if one.busy is not None and one.bytes < SLIGHT * total]
    if idle:
        text += f", the others used {statistics.fmean(idle):.1f} cores each"
    return SingleWriter(ranks, workers, text)


SHARED_OUT = frozenset({Limit.SERIALIZE, Limit.SERVER})  # limits of work that several writers would do in parallel
