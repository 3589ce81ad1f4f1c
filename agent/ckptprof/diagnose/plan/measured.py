"""What recorded checkpoints tell a plan: medians over the saves and restores of one job."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ckptprof import figures
from ckptprof.diagnose.plan.figures import Figure, Measured, Origin
from ckptprof.model import Checkpoint, Kind, Mode
from ckptprof.units import plural


def measure(checkpoints: Sequence[Checkpoint]) -> Measured | None:
    """Return what the job of the newest complete save shows, None if there is no such save."""
    saves = [c for c in figures.complete(checkpoints) if c.kind is Kind.SAVE and c.bytes > 0]
    if not saves:
        return None
    job = max(saves, key=lambda save: save.start_ns).job
    own = [save for save in saves if save.job == job]
    begun = [c for c in checkpoints if c.kind is Kind.SAVE and c.job == job]
    restores = [c for c in figures.complete(checkpoints) if c.kind is Kind.RESTORE and c.job == job]
    ranks = [save.ranks for save in own if save.ranks is not None and save.ranks > 0]
    cost, costs = _cost(own)
    return Measured(
        job=job,
        saves=len(own),
        costs=costs,
        other_jobs=len({c.job for c in checkpoints if c.kind is not Kind.COPY} - {job}),
        beside_training=any(save.mode is not Mode.SYNC for save in own),
        ranks=max(ranks, default=None),
        size=_median(figures.of_all(own, figures.size_bytes), "size of", plural(len(own), "save")),
        cost=cost,
        duration=_median(figures.of_all(own, figures.duration_seconds), "duration of", plural(len(own), "save")),
        rate=_median(figures.of_all(own, figures.rate_bytes_per_second), "rate of", plural(len(own), "save")),
        interval=_median(figures.intervals_seconds(begun), "between", plural(len(begun), "save")),
        restore=_median(
            figures.of_all(restores, figures.duration_seconds), "duration of", plural(len(restores), "restore")
        ),
    )


def _cost(saves: Sequence[Checkpoint]) -> tuple[Figure | None, int]:
    """Return the median stall; where none was seen, how long sync saves took, which block training; and of how many."""
    stalls = figures.of_all(saves, figures.stall_seconds)
    if stalls:
        of = plural(len(saves), "save")
        of = of if len(stalls) == len(saves) else f"{len(stalls):,} of {of}"
        text = _named(stalls, "stall of", of)
        return Figure(value=figures.median(stalls), origin=Origin.MEASURED, text=text), len(stalls)
    blocking = figures.of_all([save for save in saves if save.mode is Mode.SYNC], figures.duration_seconds)
    figure = _median(blocking, "duration of", plural(len(blocking), "sync save"))
    if figure is not None:
        figure = msgspec.structs.replace(figure, text=f"no stall was seen: {figure.text}")
    return figure, len(blocking)


def _median(values: Sequence[float], what: str, of: str) -> Figure | None:
    """Return the median with what it is of; None without values, or if it is nothing."""
    value = figures.median(values) if values else 0.0
    return Figure(value=value, origin=Origin.MEASURED, text=_named(values, what, of)) if value > 0 else None


def _named(values: Sequence[float], what: str, of: str) -> str:
    """Return what a figure is of; one value alone is no median."""
    return f"{'median ' if len(values) > 1 else ''}{what} {of}"
