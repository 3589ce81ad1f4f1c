"""What limits checkpoints on each storage, optionally before and after a time."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ckptprof import figures
from ckptprof.bounds import Amount, Count, Share
from ckptprof.cluster.fleet.runs import FleetAnswer, grouped, saves_and_restores, storage_of
from ckptprof.cluster.model import ClusterCheckpoint
from ckptprof.verdicts import Limit


class LimitRow(msgspec.Struct, frozen=True, kw_only=True):
    """The checkpoints on one storage with one limit."""

    storage: str  # its file system, by the same name on all nodes; object store, local (per node), not known
    limit: Limit | None  # None: no verdict
    count: Count
    jobs: Count
    nodes: Count  # with this limit; of a checkpoint across nodes, the last one
    lost_seconds: Amount  # time that training lost at most
    lost_share: Share | None  # of all time lost in this period; None: none lost
    median_seconds: Amount | None  # of complete checkpoints, by the slowest rank
    bytes_per_second: Amount | None  # the median
    gain_seconds: Amount | None  # total time saved without the limit; None: unknown


class Period(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of checkpoints that started in a period."""

    since_ns: int | None  # epoch nanoseconds; None: from the first checkpoint
    until_ns: int | None  # epoch nanoseconds; None: to the last checkpoint
    count: Count
    limits: tuple[LimitRow, ...]  # the most lost time first


class Limits(FleetAnswer, frozen=True, kw_only=True):
    """How many checkpoints had each limit, and the time that it cost."""

    periods: tuple[Period, ...]  # one, or two: before and after the given time


def limits(checkpoints: Sequence[ClusterCheckpoint], split_ns: int | None) -> Limits:
    """Return the limits of checkpoints; with `split_ns` before and after it."""
    every = saves_and_restores(checkpoints)
    if split_ns is None:
        periods = [_period(every, None, None)]
    else:
        periods = [
            _period([one for one in every if one.whole.start_ns < split_ns], None, split_ns),
            _period([one for one in every if one.whole.start_ns >= split_ns], split_ns, None),
        ]
    return Limits(checkpoints=len(every), periods=tuple(periods))


def _period(mine: Sequence[ClusterCheckpoint], since_ns: int | None, until_ns: int | None) -> Period:
    lost = sum(figures.lost_seconds(one.whole) for one in mine)
    rows = [_row(storage, limit, some, lost) for (storage, limit), some in grouped(mine, _storage_and_limit).items()]
    rows.sort(key=lambda one: (-one.lost_seconds, -one.count, one.storage, one.limit or ""))
    return Period(since_ns=since_ns, until_ns=until_ns, count=len(mine), limits=tuple(rows))


def _storage_and_limit(one: ClusterCheckpoint) -> tuple[str, Limit | None]:
    return storage_of(one), None if one.whole.verdict is None else one.whole.verdict.limit


def _row(storage: str, limit: Limit | None, mine: Sequence[ClusterCheckpoint], of_all: float) -> LimitRow:
    wholes = [one.whole for one in mine]
    lost = sum(map(figures.lost_seconds, wholes))
    lengths = figures.of_complete(wholes, figures.duration_seconds)
    rates = figures.of_complete(wholes, figures.rate_bytes_per_second)
    verdicts = [one.verdict for one in wholes if one.verdict is not None]
    gains = [max(0.0, one.seconds - one.expected_seconds) for one in verdicts if one.expected_seconds is not None]
    return LimitRow(
        storage=storage,
        limit=limit,
        count=len(mine),
        jobs=len({one.job for one in wholes}),
        nodes=len({part.host for one in mine for part in one.nodes if part.limit is limit}),
        lost_seconds=lost,
        lost_share=min(1.0, lost / of_all) if of_all else None,
        median_seconds=figures.median(lengths) if lengths else None,
        bytes_per_second=figures.median(rates) if rates else None,
        gain_seconds=sum(gains) if gains else None,
    )
