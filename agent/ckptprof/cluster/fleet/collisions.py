"""Which jobs save at the same time on the same storage, what that costs them, and by how much to shift one of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

import msgspec

from ckptprof import figures
from ckptprof.bounds import Amount, Count
from ckptprof.cluster.fleet.runs import LOCAL, NOT_KNOWN, OBJECT_STORE, Told, counted, grouped, run_of, storage_of
from ckptprof.cluster.model import ClusterCheckpoint
from ckptprof.model import Kind

LEAST_ALONE = 3  # saves that tell how long one takes that meets no other
SAME_INTERVAL = 0.05  # of two runs, to which their intervals are one; a shift lasts the longer the less they differ
_NS = 1_000_000_000


class Party(msgspec.Struct, frozen=True, kw_only=True):
    """One of two runs that save at the same time."""

    job: str
    run: str
    saves: Count
    met: Count  # of these, while the other one saved
    median_alone_seconds: Amount | None  # of saves that met no other run on this storage; None: fewer than three
    median_met_seconds: Amount  # of those that met the other one
    interval_seconds: Amount | None  # between the starts of two saves, the median


class Collision(msgspec.Struct, frozen=True, kw_only=True):
    """Two runs that save at the same time on the same storage."""

    storage: str
    first: Party  # that with the name that sorts first
    second: Party
    overlap_seconds: Amount  # in which both saved
    cost_seconds: Amount | None  # by which the saves that met took longer than those that met none, of both; None: no
    # run has three that met none
    shift_seconds: Amount | None  # by which the second one should save later to be in the midst between two saves of
    # the first; None: they have not one interval, and meet by chance


class Collisions(Told, frozen=True, kw_only=True):
    """Runs whose saves meet, those that cost the most first."""

    elsewhere: Count  # saves on no storage that is known to be shared: they are compared with none
    pairs: tuple[Collision, ...]


def collisions(checkpoints: Sequence[ClusterCheckpoint]) -> Collisions:
    """Return which runs saved at the same time; saves are swept by their start once for each storage."""
    every = counted(checkpoints)
    saves = [one for one in every if one.whole.kind is Kind.SAVE]
    by_storage = grouped(saves, storage_of)
    found: list[Collision] = []
    elsewhere = 0
    for storage, mine in by_storage.items():
        if storage in (LOCAL, NOT_KNOWN, OBJECT_STORE):  # of stores there are many behind one name
            elsewhere += len(mine)
        else:
            found += _on_one(storage, mine)
    found.sort(key=lambda one: (-(one.cost_seconds or 0.0), -one.overlap_seconds, one.first.run, one.second.run))
    return Collisions(checkpoints=len(every), elsewhere=elsewhere, pairs=tuple(found))


class _Meeting:
    def __init__(self) -> None:
        self.overlap_ns = 0
        self.until_ns = 0  # up to which it is counted
        self.met: tuple[dict[str, ClusterCheckpoint], dict[str, ClusterCheckpoint]] = ({}, {})


def _on_one(storage: str, saves: Sequence[ClusterCheckpoint]) -> Iterable[Collision]:
    meetings: dict[tuple[str, str], _Meeting] = {}
    busy: set[str] = set()  # uids of saves that met another run's
    under_way: list[ClusterCheckpoint] = []
    for one in sorted(saves, key=lambda save: save.whole.start_ns):
        under_way = [other for other in under_way if other.whole.end_ns > one.whole.start_ns]
        for other in under_way:
            if run_of(one) != run_of(other):
                _meet(meetings, one, other)
                busy |= {one.whole.uid, other.whole.uid}
        under_way.append(one)
    runs = grouped(saves, run_of)
    for (first, second), meeting in meetings.items():
        yield _collision(storage, (runs[first], runs[second]), meeting, busy)


def _meet(meetings: dict[tuple[str, str], _Meeting], one: ClusterCheckpoint, other: ClusterCheckpoint) -> None:
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
    parties, costs = [], []
    for mine, met in zip(runs, (list(one.values()) for one in meeting.met), strict=True):
        alone = [figures.duration_seconds(one.whole) for one in mine if one.whole.uid not in busy]
        lengths = [figures.duration_seconds(one.whole) for one in met]
        usual = median(alone) if len(alone) >= LEAST_ALONE else None
        if usual is not None:
            costs.append(sum(length - usual for length in lengths))
        apart = figures.intervals_seconds(one.whole for one in mine)
        parties.append(
            Party(
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
        first=parties[0],
        second=parties[1],
        overlap_seconds=meeting.overlap_ns / _NS,
        cost_seconds=max(0.0, sum(costs)) if costs else None,
        shift_seconds=_shift(parties[0], parties[1], runs),
    )


def _shift(
    first: Party, second: Party, runs: tuple[Sequence[ClusterCheckpoint], Sequence[ClusterCheckpoint]]
) -> float | None:
    """Return by how much later the second run saves in the midst between two saves of the first, by their last ones."""
    if first.interval_seconds is None or second.interval_seconds is None:
        return None
    interval = min(first.interval_seconds, second.interval_seconds)
    if abs(first.interval_seconds - second.interval_seconds) > SAME_INTERVAL * interval:
        return None
    apart = (runs[1][-1].whole.start_ns - runs[0][-1].whole.start_ns) / _NS
    return (interval / 2 - apart) % interval
