"""When the GPU of a training process was idle, by what its driver recorded: the best evidence of whether it trains.

A driver retains some seconds: the share of time with a running kernel, in periods of 0.2 s (on an H200: 14 s). A GPU
that waits for the GPUs of other ranks runs a kernel all the time, so with several ranks only an idle GPU is evidence.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby, pairwise
from statistics import median
from typing import NamedTuple

from ckptprof.detect.tolerances import COUNTER_LAG_NS, LATE_COUNTER_NS, MANY, POLL_INTERVAL_NS
from ckptprof.detect.world.spans import Span, length, overlap_ns

BASELINE_REACH_NS = 20_000_000_000  # before and after a save: the baseline
STILL_SHARE = 0.2  # of the usual activity
_BUSY_PERCENT = 10  # below that an idle GPU is no evidence


class _GpuPeriod(NamedTuple):
    start_ns: int
    end_ns: int
    percent: int  # of the time a kernel ran


def idle_spans(points: list[tuple[int, int]], save: Span, is_at_save: Callable[[int, int], bool]) -> list[Span] | None:
    """Find when a GPU was idle for longer than without a save; None if unknown.

    Points are (end of a period in ns, percent of it with a running kernel); periods that `is_at_save` are not used as
    the baseline. If it never resumed, idleness counts up to the end of the save: it is unknown whether the rest was for
    it.
    """
    periods = [_GpuPeriod(max(a[0], b[0] - POLL_INTERVAL_NS), b[0], b[1]) for a, b in pairwise(sorted(points))]
    around = save[0] - BASELINE_REACH_NS, save[1] + BASELINE_REACH_NS
    periods = _periods_of_training([one for one in periods if overlap_ns(one[:2], [around])])
    if sum(overlap_ns(one[:2], [save]) for one in periods) * 2 < save[1] - save[0]:
        return None
    usual_periods = [one for one in periods if one.end_ns <= save[0] and not is_at_save(one.start_ns, one.end_ns)]
    busy = [one.percent for one in usual_periods if one.percent >= _BUSY_PERCENT]
    if len(busy) < MANY:
        return None
    usual_percent = median(busy)
    found = _runs([one.percent < STILL_SHARE * usual_percent for one in periods])
    runs = [_widen(periods, first, last, usual_percent) for is_idle, first, last in found if is_idle]
    if found[-1][0]:
        runs[-1] = runs[-1][0], max(runs[-1][0], min(runs[-1][1], save[1]))
    other_runs = [
        run for run in runs if run[1] < save[0] - LATE_COUNTER_NS and not is_at_save(run[0], run[1] + LATE_COUNTER_NS)
    ]
    if length(other_runs) * 3 > length(one[:2] for one in usual_periods):  # it is often idle
        return None
    pauses = sorted(end_ns - start_ns for start_ns, end_ns in other_runs)[-2:]  # one pause may be an exception
    return [run for run in runs if len(pauses) < 2 or run[1] - run[0] > pauses[0] + COUNTER_LAG_NS]


def _periods_of_training(periods: list[_GpuPeriod]) -> list[_GpuPeriod]:
    """Periods since many in a row were busy: before that it was starting."""
    for is_busy, first, last in _runs([one.percent >= _BUSY_PERCENT for one in periods]):
        if is_busy and last - first + 1 >= MANY:
            return periods[first:]
    return []


def _runs(flags: list[bool]) -> list[tuple[bool, int, int]]:
    found, at = [], 0
    for flag, run in groupby(flags):
        count = len(list(run))
        found.append((flag, at, at + count - 1))
        at += count
    return found


def _widen(periods: list[_GpuPeriod], first: int, last: int, usual: float) -> Span:
    """Extend a run of idle periods into its neighbours by their idle share."""
    start_ns, end_ns = periods[first].start_ns, periods[last].end_ns
    if first and periods[first - 1].end_ns == start_ns:
        start_ns -= _idle_part_ns(periods[first - 1], usual)
    if last + 1 < len(periods) and periods[last + 1].start_ns == end_ns:
        end_ns += _idle_part_ns(periods[last + 1], usual)
    return start_ns, end_ns


def _idle_part_ns(one: _GpuPeriod, usual: float) -> int:
    return int((one.end_ns - one.start_ns) * max(0.0, 1 - one.percent / usual))
