"""What several ranks make of a checkpoint: one that ends long after the others, or one that does all the work."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from ckptprof.diagnose.accounts.parts import STORED, Part
from ckptprof.diagnose.accounts.path import Rank, foremost, ranks, time_of
from ckptprof.diagnose.accounts.storage import throttle
from ckptprof.diagnose.sight import MOST, NS, SLIGHT, Sight, some
from ckptprof.units import percent, seconds, size
from ckptprof.verdicts import Limit

_LATE_SHARE = 0.25  # of the span
_LATE_SECONDS = 0.5
_ALONE = 0.9  # of the bytes
_BUSY = 0.8  # of the time, or of a limit: what is shared was never idle, and who ends last is chance
_LARGER = 1.3  # times the bytes of the others: that is why it was late
_AT_CPUS = (Part.USER, Part.COPY, Part.KERNEL, Part.CPU, Part.STARVED, Part.QUEUED)


@dataclass(frozen=True)
class Straggler:
    """A rank that ended long after the others."""

    seconds: float
    text: str
    crowding: float  # seconds that the others would have waited longer for storage and CPUs with it beside them


@dataclass(frozen=True)
class Alone:
    """One writer of several ranks."""

    ranks: int
    workers: int  # that could work at once: no more than there are processors
    text: str


def number_of_ranks(sight: Sight) -> int:
    """Return how many ranks the job has, 1 if nothing tells."""
    return max(int(some(sight.checkpoint.ranks)), len(_told(sight)), 1)


def ranks_here(sight: Sight) -> int:
    """Return how many of them may have been seen writing: not those on other nodes."""
    run = sight.checkpoint.run
    return max(len(_told(sight)), 1) if run is not None and some(run.nodes) > 1 else number_of_ranks(sight)


def _told(sight: Sight) -> set[int]:
    told = {one.rank for one in sight.measures.processes if one.rank is not None}
    return told | {one.rank for one in sight.checkpoint.writers if one.rank is not None}


def straggler(sight: Sight, asleep_share: float) -> Straggler | None:
    """Return by how much the last rank ended after the middle one of the others, unless storage was at its limit."""
    found = ranks(sight)
    mean = sum(one.bytes for one in found) / max(1, len(found))
    found = tuple(one for one in found if one.bytes >= SLIGHT * mean)
    if len(found) < 2:
        return None
    last, others = found[-1], found[:-1]
    late = (last.end_ns - statistics.median(one.end_ns for one in others)) / NS
    if late < max(_LATE_SECONDS, _LATE_SHARE * sight.span) or _saturated(sight, asleep_share):
        return None
    return Straggler(late, _why(late, last, others), _crowding(sight, last, others))


def _crowding(sight: Sight, last: Rank, others: tuple[Rank, ...]) -> float:
    """Return what its bytes add to the waits of the others, who had storage and CPUs to themselves while it was late.

    What they waited for moved their bytes in that time, and is taken to move its share of them at the same rate; CPUs
    are shared by all, if there are fewer than ranks.
    """
    theirs = sum(one.bytes for one in others)
    ended_ns = statistics.median(one.end_ns for one in others)
    apart = (last.end_ns - max(ended_ns, last.start_ns)) / max(1, last.end_ns - last.start_ns)
    share = min(last.bytes, statistics.median(one.bytes for one in others)) / theirs
    stored = statistics.median(_spent(sight, one.pid, STORED) for one in others)
    busy = sight.device.busy_seconds if sight.device is not None else None
    if sight.remote or busy is None or busy * theirs / (theirs + last.bytes) < MOST * stored:
        stored = 0.0
    cores = sight.measures.cores
    crowded = cores is not None and len(others) >= cores
    computed = statistics.median(_spent(sight, one.pid, _AT_CPUS) for one in others) if crowded else 0.0
    return apart * share * (stored + computed)


def _spent(sight: Sight, pid: int, parts: tuple[Part, ...]) -> float:
    thread = foremost([one for one in sight.measures.threads if one.pid == pid and one.end_ns > one.start_ns])
    return time_of(thread, thread.start_ns, thread.end_ns).parts.of(*parts) if thread is not None else 0.0


def _saturated(sight: Sight, asleep_share: float) -> bool:
    """Return whether the ranks shared a device that was never idle: then who ends last is chance."""
    bound = throttle(sight, sight.span)
    return asleep_share >= MOST and (bound.share if bound is not None else some(sight.device_busy)) >= _BUSY


def _why(late: float, last: Rank, others: tuple[Rank, ...]) -> str:
    text = f"one rank finished {seconds(late)} after the median of the others"
    bytes_ = statistics.median(one.bytes for one in others)
    begun = (last.start_ns - statistics.median(one.start_ns for one in others)) / NS
    if bytes_ and last.bytes >= _LARGER * bytes_:
        return f"{text}, with {size(last.bytes)} instead of {size(bytes_)}"
    if begun >= MOST * late:
        return f"{text}, having started {seconds(begun)} later"
    return f"{text}, slower with the same number of bytes"


def alone(sight: Sight) -> Alone | None:
    """Return the one writer of several ranks of this host."""
    ranks = ranks_here(sight)
    if ranks < 2 or not sight.writes:
        return None
    moved = [one.bytes for one in sight.checkpoint.writers] or [one.bytes for one in sight.measures.processes]
    total = sum(moved)
    if not total or max(moved) < _ALONE * total:
        return None
    cores = sight.measures.cores
    workers = min(ranks, cores) if cores and cores > 0 else ranks
    text = f"one of {ranks} ranks wrote {percent(max(moved) / total)} of the bytes"
    idle = [one.busy for one in sight.measures.processes if one.busy is not None and one.bytes < SLIGHT * total]
    if idle:
        text += f", the others used {statistics.fmean(idle):.1f} cores each"
    return Alone(ranks, workers, text)


SHARED_OUT = frozenset({Limit.SERIALIZE, Limit.SERVER})  # what several writers would do at the same time
