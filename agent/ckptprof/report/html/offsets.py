"""Where in its file each stream of one checkpoint was, and when: a lane for each, on the checkpoint's own axis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ckptprof import units
from ckptprof.model import Checkpoint, Progress, Stream, Succession
from ckptprof.report import rows
from ckptprof.report.clean import clean
from ckptprof.report.html.axis import Axis
from ckptprof.report.html.lanes import label, slowest

HEIGHT = 40.0
MAX_LANES = 16
# What is drawn, by the order of the operations, with its class and what it means
STYLES: dict[Succession | None, tuple[str, str]] = {
    Succession.NEXT: ("order-next", "consecutive"),
    Succession.ON: ("order-on", "forward, with gaps"),
    Succession.BACK: ("order-back", "with backward seeks, anywhere in the box"),
    None: ("order-unseen", "order not observed, anywhere in the box"),
}
LOOK = ("look", "position in one sample")


def offsets(checkpoints: Sequence[Checkpoint]) -> dict[str, Any] | None:
    """Return what is drawn of the slowest of those whose streams are known; None where there is none.

    There is nothing between two points, and no range of a look; the slowest rank comes first.
    """
    known = [one for one in checkpoints if one.streams]
    if not known:
        return None
    one = slowest(known, 1)[0]
    ends = {writer.pid: writer.end_ns or 0 for writer in one.writers}
    seen = [stream for stream in one.streams if stream.progress]  # the process first that ended last
    seen.sort(key=lambda stream: (-ends.get(stream.pid, 0), stream.pid, -stream.bytes, stream.path))
    drawn = seen[:MAX_LANES]
    points = [point for stream in drawn for point in stream.progress]
    axis = axis_of(one, points)
    common = rows.common_folder([stream.path for stream in drawn])
    kinds = {point.order for point in points if point.bytes is not None}
    legend = [told for order, told in STYLES.items() if order in kinds]
    legend += [LOOK] if any(point.bytes is None for point in points) else []
    ranks = {writer.pid: writer.rank for writer in one.writers if writer.rank is not None}
    lanes = [_lane(stream, axis, ranks.get(stream.pid), common) for stream in drawn]
    notes = []
    if left_out := len(seen) - len(drawn) + one.progress_left_out:
        notes.append(f"{units.plural(left_out, 'stream')} not shown: the slowest and largest are drawn")
    if unseen := max(0, len(one.streams) - len(seen) - one.progress_left_out):
        notes.append(f"no offsets recorded for {units.plural(unseen, 'stream')}")
    ticks = axis.elapsed() if lanes else []
    return {"name": label(one), "lanes": lanes, "ticks": ticks, "legend": legend, "note": "; ".join(notes)}


def axis_of(one: Checkpoint, points: Iterable[Progress]) -> Axis:
    """Return the axis from the begin of a checkpoint to its end, with room for what was seen beyond its edges."""
    edges = [edge for point in points for edge in (point.start_ns, point.end_ns)]
    return Axis(min([one.start_ns, *edges]), max([one.end_ns, *edges]))


def top_of(stream: Stream) -> int:
    """Return the offset at the top of a stream's lane: the end of its file, or as far as it was seen."""
    return max(stream.size or 0, 1, *(point.high_offset for point in stream.progress))


def _lane(stream: Stream, axis: Axis, rank: int | None, common: str | None) -> dict[str, Any]:
    top = top_of(stream)
    boxes: dict[str, str] = {}
    lines: dict[str, str] = {}
    looks = ""
    for point in stream.progress:
        x, until = axis.x(point.start_ns), axis.x(point.end_ns)
        low, high = (round(HEIGHT * (1 - offset / top), 2) for offset in (point.low_offset, point.high_offset))
        if point.bytes is None:
            looks += f"M{x:g} {low:g}h0"
            continue
        style = STYLES[point.order][0]
        boxes[style] = boxes.get(style, "") + f"M{x:g} {low:g}H{until:g}V{high:g}H{x:g}z"
        if point.order in (Succession.NEXT, Succession.ON):
            lines[style] = lines.get(style, "") + f"M{x:g} {low:g}L{until:g} {high:g}"
    who = f"{clean(stream.comm)} {stream.pid}" if rank is None else f"rank {rank}"
    name = clean(stream.path.removeprefix(common or "")) if common else clean(stream.path.rpartition("/")[2])
    return {
        "who": who,
        "file": name,
        "scale": units.size(top),  # the offset at the top; 0 is at the bottom
        "boxes": list(boxes.items()),  # class and path: between when and when, and which offsets
        "lines": list(lines.items()),  # of what went forward, from the corner where it began to that where it ended
        "looks": looks,
    }
