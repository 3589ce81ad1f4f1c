"""The time axis that all lanes of the timeline share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import tzinfo
from typing import NamedTuple

from ckptprof import units
from ckptprof.model import Checkpoint, Gap, Watched

WIDTH = 1000.0  # of a drawing; it is stretched to the page
MIN_WIDTH = 0.001  # of a width; an outline makes it visible
MAX_GAPS = 500  # that are drawn, the longest
_MARGIN = 0.02
_SECOND = 1_000_000_000
_DAY = 86_400
_STEPS = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200,
    _DAY, 2 * _DAY, 4 * _DAY, 7 * _DAY, 14 * _DAY, 30 * _DAY,
)  # fmt: skip
_TICKS = 7  # at most


class Tick(NamedTuple):
    """A time that is written below the axis."""

    percent: float
    text: str


class Axis(NamedTuple):
    """A range of wall clock time, in epoch nanoseconds."""

    start_ns: int
    end_ns: int

    def x(self, at_ns: int) -> float:
        """Return the position of an instant, from 0 to WIDTH."""
        share = (at_ns - self.start_ns) / max(1, self.end_ns - self.start_ns)
        return round(min(1.0, max(0.0, share)) * WIDTH, 3)

    @property
    def is_within_a_year(self) -> bool:
        """Whether its dates are unique without the year."""
        return self.end_ns - self.start_ns < 365 * _DAY * _SECOND

    def span(self, start_ns: int, end_ns: int) -> tuple[float, float]:
        """Return the position and the width of a time range."""
        start = self.x(start_ns)
        width = max(MIN_WIDTH, self.x(end_ns) - start)
        return min(start, WIDTH - width), round(width, 3)

    def ticks(self, zone: tzinfo) -> list[Tick]:
        """Return round local times, at most seven."""
        seconds = (self.end_ns - self.start_ns) / _SECOND
        longest = _STEPS[-1]
        many = -(-seconds // (longest * _TICKS)) * longest  # for more than half a year
        step = int(next((step for step in _STEPS if seconds / step <= _TICKS), many)) * _SECOND
        moment = units.moment(self.start_ns, zone)
        offset = moment.utcoffset() if moment is not None else None
        shift_ns = 0 if offset is None else int(offset.total_seconds()) * _SECOND
        first = -(-(self.start_ns + shift_ns) // step) * step - shift_ns
        patterns = ((_DAY, "%m-%d"), (3600, "%m-%d %H:%M"), (60, "%H:%M"), (0, "%H:%M:%S"))
        pattern = next(written for least, written in patterns if step >= least * _SECOND)
        pattern = pattern if self.is_within_a_year else "%Y-%m-%d"
        return [
            Tick(round(self.x(at_ns) / WIDTH * 100, 3), units.stamp(at_ns, zone, pattern))
            for at_ns in range(first, self.end_ns + 1, step)
        ]

    def elapsed(self) -> list[Tick]:
        """Return round times since the start, at most seven."""
        span = max(1, self.end_ns - self.start_ns)
        scale = 10 ** (len(str(span)) - 1)
        step = next(part * scale // 10 or 1 for part in (1, 2, 5, 10, 20) if span * 10 <= _TICKS * part * scale)
        return [
            Tick(round(at_ns / span * 100, 3), f"+{at_ns / _SECOND:g} s" if at_ns else "0 s")
            for at_ns in range(0, self.end_ns - self.start_ns + 1, step)
        ]


def axis_of(checkpoints: Sequence[Checkpoint], watched: Watched) -> Axis | None:
    """Return the axis of the recorded time, or of the checkpoints with a margin."""
    starts = [at_ns for one in checkpoints for at_ns in (one.start_ns, *(span.start_ns for span in one.blocked))]
    ends = [at_ns for one in checkpoints for at_ns in (one.end_ns, *(span.end_ns for span in one.blocked))]
    ends += [one.durable_ns for one in checkpoints if one.durable_ns is not None]
    if not starts:
        if watched.start_ns is None or watched.end_ns is None:
            return None
        return Axis(watched.start_ns, watched.end_ns)
    margin_ns = max(_SECOND // 10, int((max(ends) - min(starts)) * _MARGIN))
    return Axis(min(starts) - margin_ns, max(ends) + margin_ns)


def svg_path(spans: Iterable[tuple[float, float]], top: int, height: int) -> str:
    """Return spans of (start, width) as one SVG path."""
    return "".join(f"M{start:g} {top}h{width:g}v{height}H{start:g}z" for start, width in spans)


def visible_gaps(gaps: Iterable[Gap], axis: Axis) -> list[tuple[float, float]]:
    """Return the gaps in the recording, as (start, width)."""
    visible = [gap for gap in gaps if gap.end_ns > axis.start_ns and gap.start_ns < axis.end_ns]
    visible = sorted(visible, key=lambda gap: gap.start_ns - gap.end_ns)[:MAX_GAPS]
    return sorted(axis.span(max(gap.start_ns, axis.start_ns), min(gap.end_ns, axis.end_ns)) for gap in visible)
