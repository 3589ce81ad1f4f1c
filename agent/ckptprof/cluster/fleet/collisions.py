"""Jobs that save at the same time on the same storage, the cost, and by how much to shift one of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

import msgspec

from ckptprof import figures
from ckptprof.bounds import Amount, Count
from ckptprof.cluster.fleet.runs import (
    LOCAL,
    OBJECT_STORE,
    UNKNOWN_STORAGE,
    FleetAnswer,
    grouped,
    run_of,
    saves_and_restores,
    storage_of,
)
from ckptprof.cluster.model import ClusterCheckpoint
from ckptprof.model import Kind

LEAST_ALONE = 3  # saves without overlap needed for a usual duration
SAME_INTERVAL = 0.05  # maximum difference of equal intervals; a shift lasts longer the less they differ
_NS = 1_000_000_000


class CollidingRun(msgspec.Struct, frozen=True, kw_only=True):
    """One of two runs that save at the same time."""

    job: str
    run: str
    saves: Count
    met: Count  # of these, during a save of the other run
    median_alone_seconds: Amount | None  # of saves without overlap on this storage; None: fewer than three
    median_met_seconds: Amount  # of saves that overlapped the other run
    interval_seconds: Amount | None  # between the starts of two saves, the median


class Collision(msgspec.Struct, frozen=True, kw_only=True):
    """Two runs that save at the same time on the same storage."""

    storage: str
    first: CollidingRun  # first by name
    second: CollidingRun
    overlap_seconds: Amount  # time in which both saved
    cost_seconds: Amount | None  # added duration of overlapping saves, both runs; None: no run has
    # three saves without overlap
    shift_seconds: Amount | None  # delay of the second run that puts its saves midway between those of the
    # first; None: different intervals, overlap by chance


class Collisions(FleetAnswer, frozen=True, kw_only=True):
    """Runs with overlapping saves, the most costly first."""

    elsewhere: Count  # saves on storage not known to be shared: not compared
    pairs: tuple[Collision, ...]


def collisions(checkpoints: Sequence[ClusterCheckpoint]) -> Collisions:
    """Return runs with overlapping saves; one sweep by start per storage."""
    every = saves_and_restores(checkpoints)
    saves = [one for one in every if one.whole.kind is Kind.SAVE]
    by_storage = grouped(saves, storage_of)
    found: list[Collision] = []
    elsewhere = 0
    for storage, mine in by_storage.items():
        if storage in (LOCAL, UNKNOWN_STORAGE, OBJECT_STORE):  # the name covers many stores
            elsewhere += len(mine)
        else:
            found += _on_one(storage, mine)
    found.sort(key=lambda one: (-(one.cost_seconds or 0.0), -one.overlap_seconds, one.first.run, one.second.run))
    return Collisions(checkpoints=len(every), elsewhere=elsewhere, pairs=tuple(found))


class _Meeting:
    def __init__(self) -> None:
        self.overlap_ns = 0
        self.until_ns = 0  # end of the counted overlap
        self.met: tuple[dict[str, ClusterCheckpoint], dict[str, ClusterCheckpoint]] = ({}, {})


def _on_one(storage: str, saves: Sequence[ClusterCheckpoint]) -> Iterable[Collision]:
    meetings: dict[tuple[str, str], _Meeting] = {}
    busy: set[str] = set()  # uids of saves that overlap another run
    under_way: list[ClusterCheckpoint] = []
    for one in sorted(saves, key=lambda save: save.whole.start_ns):
        under_way = [other for other in under_way if other.whole.end_ns > one.whole.start_ns]
        for other in under_way:
            if run_of(one) != run_of(other):
                _add_overlap(meetings, one, other)
                busy |= {one.whole.uid, other.whole.uid}
        under_way.append(one)
    runs = grouped(saves, run_of)
    for (first, second), meeting in meetings.items():
        yield _collision(storage, (runs[first], runs[second]), meeting, busy)


def _add_overlap(meetings: dict[tuple[str, str], _Meeting], one: ClusterCheckpoint, other: ClusterCheckpoint) -> None:
    first, second = sorted((one, other), key=run_of)
    meeting = meetings.setdefault((run_of(first), run_of(second)), _Meeting())
    until_ns = min(one.whole.end_ns, other.whole.end_ns)
    meeting.overlap_ns += max(0, until_ns - max(one.whole.start_ns, meeting.until_ns))
    meeting.until_ns = max(until_ns, meeting.until_ns)
    meeting.met[0][first.whole.uid] = first
    meeting.met[1][second.whole.uid] = second


def _collision(
    storage: str,
    runs: tuple[Sequence[ClusterCheckpoint], Sequence[ClusterCheckpoint]],
    meeting: _Meeting,
    busy: set[str],
) -> Collision:
    sides, costs = [], []
    for mine, met in zip(runs, (list(one.values()) for one in meeting.met), strict=True):
        alone = [figures.duration_seconds(one.whole) for one in mine if one.whole.uid not in busy]
        lengths = [figures.duration_seconds(one.whole) for one in met]
        usual = median(alone) if len(alone) >= LEAST_ALONE else None
        if usual is not None:
            costs.append(sum(length - usual for length in lengths))
        apart = figures.intervals_seconds(one.whole for one in mine)
        sides.append(
            CollidingRun(
                job=mine[-1].whole.job,
                run=run_of(mine[-1]),
                saves=len(mine),
                met=len(met),
                median_alone_seconds=usual,
                median_met_seconds=median(lengths),
                interval_seconds=median(apart) if apart else None,
            )
        )
    return Collision(
        storage=storage,
        first=sides[0],
        second=sides[1],
        overlap_seconds=meeting.overlap_ns / _NS,
        cost_seconds=max(0.0, sum(costs)) if costs else None,
        shift_seconds=_shift(sides[0], sides[1], runs),
    )


def _shift(
    first: CollidingRun, second: CollidingRun, runs: tuple[Sequence[ClusterCheckpoint], Sequence[ClusterCheckpoint]]
) -> float | None:
    """Return the seconds that shift the second run's saves midway between the first's; None: no common interval."""
    if first.interval_seconds is None or second.interval_seconds is None:
        return None
    interval = min(first.interval_seconds, second.interval_seconds)
    if abs(first.interval_seconds - second.interval_seconds) > SAME_INTERVAL * interval:
        return None
    apart = (runs[1][-1].whole.start_ns - runs[0][-1].whole.start_ns) / _NS
    return (interval / 2 - apart) % interval
