"""What recorded checkpoints tell a plan: medians over the saves and restores of one job."""

from __future__ import annotations

from collections.abc import Sequence

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
        ranks=max(ranks, default=None),
        size=_median(figures.of_all(own, figures.size_bytes), f"median of {_saves(len(own))}"),
        cost=cost,
        duration=_median(figures.of_all(own, figures.duration_seconds), f"median duration of {_saves(len(own))}"),
        rate=_median(figures.of_all(own, figures.rate_bytes_per_second), f"median rate of {_saves(len(own))}"),
        interval=_median(figures.intervals_seconds(begun), f"median between {_saves(len(begun))}"),
        restore=_median(
            figures.of_all(restores, figures.duration_seconds), f"median duration of {plural(len(restores), 'restore')}"
        ),
    )


def _cost(saves: Sequence[Checkpoint]) -> tuple[Figure | None, int]:
    """Return the median stall; where none was seen, how long sync saves took, which block training; and of how many."""
    stalls = figures.of_all(saves, figures.stall_seconds)
    if stalls:
        of = _saves(len(saves)) if len(stalls) == len(saves) else f"{len(stalls):,} of {_saves(len(saves))}"
        return Figure(value=figures.median(stalls), origin=Origin.MEASURED, text=f"median stall of {of}"), len(stalls)
    blocking = figures.of_all([save for save in saves if save.mode is Mode.SYNC], figures.duration_seconds)
    text = f"no stall was seen: median duration of {plural(len(blocking), 'sync save')}"
    return _median(blocking, text), len(blocking)


def _median(values: Sequence[float], text: str) -> Figure | None:
    """Return the median with what it is of; None without values, or if it is nothing."""
    value = figures.median(values) if values else 0.0
    return Figure(value=value, origin=Origin.MEASURED, text=text) if value > 0 else None


def _saves(number: int) -> str:
    return plural(number, "save")
