"""The checkpoints that took much longer than the median, and why: one definition for terminal, page and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ckptprof import figures, units
from ckptprof.bounds import Count
from ckptprof.diagnose.losses import seconds_apart
from ckptprof.model import Checkpoint, Kind
from ckptprof.report import certainty
from ckptprof.verdicts import Limit

LONGER = 1.5  # times the median of its job and kind: an outlier
_FEWEST = 3  # minimum number of checkpoints for a median
LEAST_SECONDS = 0.2  # more than the median: less is nothing to point at
_WORK = {Limit.NONE: "work that nothing limited", None: "unexplained time"}


class Outlier(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint that took much longer than the median of its job and kind."""

    id: Count
    uid: str
    times: float  # its duration over the median
    median_seconds: float  # of the complete ones
    compared: str  # with its median
    sentence: str  # with what took more time than usual, if known, and its cost


def find_outliers(checkpoints: Sequence[Checkpoint], others: Sequence[Checkpoint] = ()) -> tuple[Outlier, ...]:
    """Return the outliers, those first that exceed their median by most seconds; `others` count for the median, too."""
    groups: dict[tuple[str, Kind], list[Checkpoint]] = {}
    for one in figures.complete({one.uid: one for one in (*others, *checkpoints)}.values()):
        groups.setdefault((one.job, one.kind), []).append(one)
    found = [pair for group in groups.values() if len(group) >= _FEWEST for pair in _outliers_of(group)]
    own = {one.uid for one in checkpoints}
    return tuple(one for _, one in sorted(found, key=lambda pair: -pair[0]) if one.uid in own)


def _outliers_of(group: Sequence[Checkpoint]) -> list[tuple[float, Outlier]]:
    usual = figures.median(map(figures.duration_seconds, group))
    least = max(LONGER * usual, usual + LEAST_SECONDS)
    slow = [one for one in group if figures.duration_seconds(one) >= least and usual > 0]
    if not slow:
        return []
    size = figures.median(one.bytes for one in group)
    parts = [seconds_apart(one.verdict) for one in group if one.verdict is not None]
    medians = {
        limit: figures.median(own.get(limit, 0.0) for own in parts) for limit in {k for own in parts for k in own}
    }
    return [(figures.duration_seconds(one) - usual, _outlier(one, usual, size, medians)) for one in slow]


def _outlier(one: Checkpoint, usual: float, size: float, medians: Mapping[Limit | None, float]) -> Outlier:
    spent, own = figures.duration_seconds(one), seconds_apart(one.verdict) if one.verdict is not None else {}
    name = f"{one.kind.value} {one.id}" if one.id else f"a {one.kind.value}"
    name += "" if one.step is None else f", step {one.step},"
    times = f"{spent / usual:.1f} times the median of {units.seconds(usual)}"
    text = f"{name} took {units.seconds(spent)}, {times}"
    most = max(own, key=lambda limit: own[limit] - medians[limit], default=None)
    if 0 < LONGER * size <= one.bytes:
        text += f", because it is {one.bytes / size:.1f} times as large"
    elif own and own[most] > medians[most]:
        work = _WORK.get(most) or certainty.account_name(most, one.verdict)
        compared = f" ({units.seconds(own[most])}, median {units.seconds(medians[most])})"
        if work == certainty.THROTTLE:  # the median is that of the disk
            work, compared = f"the {work}", f" ({units.seconds(own[most])})"
        text += f", because of {work}{compared}"
    if one.stall_ns:
        text += f"; training was blocked for {units.duration(one.stall_ns)}"
    return Outlier(id=one.id, uid=one.uid, times=spent / usual, median_seconds=usual, compared=times, sentence=text)
