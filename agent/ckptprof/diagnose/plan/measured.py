"""What recorded checkpoints tell a plan: medians over the saves and restores of one job."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from ckptprof.diagnose.plan.figures import Figure, Measured, Origin
from ckptprof.model import Checkpoint, Kind, Mode, Status

_SECOND_NS = 1_000_000_000


def measure(checkpoints: Sequence[Checkpoint]) -> Measured | None:
    """Return what the job of the newest complete save shows, None if there is no such save."""
    saves = [c for c in checkpoints if c.kind is Kind.SAVE and c.status is Status.COMPLETE and c.bytes > 0]
    if not saves:
        return None
    job = max(saves, key=lambda save: save.start_ns).job
    own = sorted((save for save in saves if save.job == job), key=lambda save: save.start_ns)
    restores = [c for c in checkpoints if c.kind is Kind.RESTORE and c.job == job and c.status is Status.COMPLETE]
    ranks = [save.ranks for save in own if save.ranks is not None and save.ranks > 0]
    sizes = [float(save.bytes) for save in own]
    return Measured(
        job=job,
        saves=len(own),
        other_jobs=len({c.job for c in checkpoints if c.kind is not Kind.COPY} - {job}),
        ranks=max(ranks, default=None),
        size=_median(sizes, f"median of {_saves(len(sizes))}"),
        cost=_cost(own),
        duration=_median(_durations(own), f"median duration of {_saves(len(own))}"),
        interval=_interval(own),
        restore=_median(_durations(restores), f"median duration of {_number(len(restores), 'restore')}"),
    )


def _cost(saves: Sequence[Checkpoint]) -> Figure | None:
    """Return the median stall; where none was seen, how long sync saves took, which block training all the while."""
    stalls = [save.stall_ns / _SECOND_NS for save in saves if save.stall_ns is not None and save.stall_ns >= 0]
    if stalls:
        of = _saves(len(saves)) if len(stalls) == len(saves) else f"{len(stalls):,} of {_saves(len(saves))}"
        return _median(stalls, f"median stall of {of}")
    blocking = _durations([save for save in saves if save.mode is Mode.SYNC])
    return _median(blocking, f"no stall was seen: median duration of {_number(len(blocking), 'sync save')}")


def _interval(saves: Sequence[Checkpoint]) -> Figure | None:
    distances = [(later.start_ns - earlier.start_ns) / _SECOND_NS for earlier, later in pairwise(saves)]
    return _median([distance for distance in distances if distance > 0], f"median between {_saves(len(saves))}")


def _durations(checkpoints: Sequence[Checkpoint]) -> list[float]:
    spent = [(checkpoint.end_ns - checkpoint.start_ns) / _SECOND_NS for checkpoint in checkpoints]
    return [seconds for seconds in spent if seconds > 0]


def _median(values: Sequence[float], text: str) -> Figure | None:
    return Figure(value=median(values), origin=Origin.MEASURED, text=text) if values else None


def _saves(number: int) -> str:
    return _number(number, "save")


def _number(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
