"""What limits checkpoints on each storage, before and after a day if one is given."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ckptprof import figures
from ckptprof.bounds import Amount, Count, Share
from ckptprof.cluster.fleet.runs import Told, counted, grouped, storage_of
from ckptprof.cluster.model import ClusterCheckpoint
from ckptprof.verdicts import Limit


class LimitRow(msgspec.Struct, frozen=True, kw_only=True):
    """The checkpoints on one storage that one limit bounded."""

    storage: str  # its file system, as all nodes call it; object store, local (of each node), not known
    limit: Limit | None  # None: without a verdict
    count: Count
    jobs: Count
    nodes: Count  # that the limit was told on, of checkpoints on several that of the last
    lost_seconds: Amount  # the time that training lost at most
    lost_share: Share | None  # of all time lost in this period at most; None: none was lost
    median_seconds: Amount | None  # of the complete ones, by the slowest rank
    bytes_per_second: Amount | None  # the median
    gain_seconds: Amount | None  # that these would be shorter without the limit, together; None: not told


class Period(msgspec.Struct, frozen=True, kw_only=True):
    """What limited the checkpoints that began in a time."""

    since_ns: int | None  # epoch nanoseconds; None: from the first one on
    until_ns: int | None  # epoch nanoseconds; None: to the last one
    count: Count
    limits: tuple[LimitRow, ...]  # that by which most time was lost first


class Limits(Told, frozen=True, kw_only=True):
    """What limited checkpoints."""

    periods: tuple[Period, ...]  # one, or those before and after the time that was given


def limits(checkpoints: Sequence[ClusterCheckpoint], split_ns: int | None) -> Limits:
    """Return what limited checkpoints; with a time those that began before it, and those that began later."""
    every = counted(checkpoints)
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
