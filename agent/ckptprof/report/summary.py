"""The figures that open a report, calculated from its checkpoints."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

import msgspec

from ckptprof import figures
from ckptprof.model import Checkpoint, CheckpointQuery, Kind, Mode, Report, Status, Watched

CACHES = ("cold", "warm", "partly")


@dataclass(frozen=True, slots=True)
class KindSummary:
    """All checkpoints of one kind together."""

    kind: Kind
    number: int
    bytes: int
    busy_ns: int  # time in which at least one of them was in progress
    complete: int
    median_seconds: float | None  # of the complete ones, None without any
    p95_seconds: float | None
    incomplete: int = 0
    stalled: int = 0  # number with a known stall
    stall_ns: int = 0  # of these, in all
    modes: tuple[tuple[Mode, int], ...] = ()  # how many were sync, how many async
    caches: tuple[tuple[str, int], ...] = ()  # of restores: how many were cold, warm, partly in the cache


@dataclass(frozen=True, slots=True)
class Summary:
    """The main figures of a report."""

    kinds: tuple[KindSummary, ...]
    watched_ns: int | None  # without the gaps; None if nothing was watched
    gap_ns: int
    share: float | None  # of the watched time, in which a save or a restore ran; what overlaps counts once


def summarise(report: Report) -> Summary:
    """Return the summary of a report."""
    watched = report.watched
    gap_ns = figures.union_ns((gap.start_ns, gap.end_ns) for gap in watched.gaps)
    watched_ns = None
    if watched.start_ns is not None and watched.end_ns is not None:
        watched_ns = max(0, watched.end_ns - watched.start_ns - gap_ns)
    busy_ns = figures.busy_ns([checkpoint for checkpoint in report.checkpoints if checkpoint.kind is not Kind.COPY])
    kinds = tuple(
        _of_kind(kind, chosen)
        for kind in Kind
        if (chosen := [checkpoint for checkpoint in report.checkpoints if checkpoint.kind is kind])
    )
    share = min(1.0, busy_ns / watched_ns) if watched_ns else None
    return Summary(kinds=kinds, watched_ns=watched_ns, gap_ns=gap_ns, share=share)


def without_copies(report: Report) -> Report:
    """Remove copies from a report and count them, as the store does by default.

    A copy that may not restore correctly stays.
    """
    shown = tuple(one for one in report.checkpoints if one.kind is not Kind.COPY or one.risks)
    left_out = report.copies_left_out + len(report.checkpoints) - len(shown)
    return msgspec.structs.replace(report, checkpoints=shown, copies_left_out=left_out)


def selected(report: Report, query: CheckpointQuery) -> Report:
    """Select checkpoints as the store does for the same query."""
    low_ns = -math.inf if query.since_ns is None else query.since_ns
    high_ns = math.inf if query.until_ns is None else query.until_ns
    fitting = [
        checkpoint
        for checkpoint in report.checkpoints
        if checkpoint.end_ns >= low_ns
        and checkpoint.start_ns <= high_ns
        and matches_job(checkpoint.job, query.job)
        and query.kind in (None, checkpoint.kind)
    ]
    watched = _clipped(report.watched, query)
    found = msgspec.structs.replace(report, checkpoints=tuple(fitting), watched=watched)
    found = without_copies(found) if query.kind is None else found
    if query.limit is None:
        return found
    newest = ordered(found.checkpoints)[-query.limit :]
    return msgspec.structs.replace(found, checkpoints=tuple(newest))


def ordered(checkpoints: Iterable[Checkpoint]) -> list[Checkpoint]:
    """Sort checkpoints by start, then by id."""
    return sorted(checkpoints, key=lambda checkpoint: (checkpoint.start_ns, checkpoint.id))


def matches_job(job: str, wanted: str | None) -> bool:
    """Match a job against --job: by name, or by a pattern, as in SQLite's GLOB."""
    return wanted is None or job == wanted or fnmatchcase(job, wanted)


def _clipped(watched: Watched, query: CheckpointQuery) -> Watched:
    if watched.start_ns is None or watched.end_ns is None:
        return watched
    start_ns = watched.start_ns if query.since_ns is None else max(watched.start_ns, query.since_ns)
    end_ns = watched.end_ns if query.until_ns is None else min(watched.end_ns, query.until_ns)
    if start_ns > end_ns:
        return Watched(start_ns=None, end_ns=None)
    gaps = [
        msgspec.structs.replace(gap, start_ns=max(gap.start_ns, start_ns), end_ns=min(gap.end_ns, end_ns))
        for gap in watched.gaps
    ]
    return Watched(start_ns=start_ns, end_ns=end_ns, gaps=tuple(gap for gap in gaps if gap.start_ns < gap.end_ns))


def _of_kind(kind: Kind, checkpoints: list[Checkpoint]) -> KindSummary:
    spent = figures.of_complete(checkpoints, figures.duration_seconds)
    stalls = [checkpoint.stall_ns for checkpoint in checkpoints if checkpoint.stall_ns is not None]
    modes = Counter(checkpoint.mode for checkpoint in checkpoints)
    caches = Counter(checkpoint.cache for checkpoint in checkpoints)
    return KindSummary(
        kind=kind,
        number=len(checkpoints),
        bytes=sum(checkpoint.bytes for checkpoint in checkpoints),
        busy_ns=figures.busy_ns(checkpoints),
        complete=len(spent),
        median_seconds=figures.median(spent) if spent else None,
        p95_seconds=figures.quantile(spent, 0.95) if spent else None,
        incomplete=sum(checkpoint.status is Status.INCOMPLETE for checkpoint in checkpoints),
        stalled=len(stalls),
        stall_ns=sum(stalls),
        modes=tuple((mode, modes[mode]) for mode in Mode if modes[mode]),
        caches=tuple((cache, caches[cache]) for cache in CACHES if caches[cache]),
    )
