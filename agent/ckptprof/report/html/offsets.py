"""The position of each stream of a checkpoint in its file over time: a lane for each, on the checkpoint's own axis."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ckptprof import units
from ckptprof.model import Checkpoint, Progress, Stream, Succession
from ckptprof.report import rows
from ckptprof.report.checkpoint_facts import offset_text
from ckptprof.report.clean import clean
from ckptprof.report.html.axis import Axis
from ckptprof.report.html.lanes import label

HEIGHT = 40.0
MAX_LANES = 16
# What is drawn, by the order of the operations, with its class and what it means
STYLES: dict[Succession | None, tuple[str, str]] = {
    Succession.NEXT: ("order-next", "consecutive"),
    Succession.ON: ("order-on", "forward, with gaps"),
    Succession.BACK: ("order-back", "with backward seeks, anywhere in the box"),
    None: ("order-unseen", "order not observed, anywhere in the box"),
}
SAMPLE = ("look", "position in one sample")


def offsets(one: Checkpoint) -> dict[str, Any] | None:
    """Return the drawing for a checkpoint; None without streams.

    Nothing is drawn between two points, and a sample has no range. The slowest rank comes first.
    """
    if not one.streams:
        return None
    ends = {writer.pid: writer.end_ns or 0 for writer in one.writers}
    observed = [stream for stream in one.streams if stream.progress]  # the process first that ended last
    observed.sort(key=lambda stream: (-ends.get(stream.pid, 0), stream.pid, -stream.bytes, stream.path))
    drawn = observed[:MAX_LANES]
    points = [point for stream in drawn for point in stream.progress]
    axis = axis_of(one, points)
    common = rows.common_folder([stream.path for stream in drawn])
    kinds = {point.order for point in points if point.bytes is not None}
    legend = [entry for order, entry in STYLES.items() if order in kinds]
    legend += [SAMPLE] if any(point.bytes is None for point in points) else []
    ranks = {writer.pid: writer.rank for writer in one.writers if writer.rank is not None}
    lanes = [_lane(stream, axis, ranks.get(stream.pid), common) for stream in drawn]
    notes = []
    if left_out := len(observed) - len(drawn) + one.progress_left_out:
        notes.append(f"{units.plural(left_out, 'stream')} not shown: the slowest and largest are drawn")
    if unknown := max(0, len(one.streams) - len(observed) - one.progress_left_out):
        notes.append(f"no offsets recorded for {units.plural(unknown, 'stream')}")
    if lanes and axis.end_ns < one.end_ns:
        last, end = (offset_text(at_ns, one) for at_ns in (axis.end_ns, one.end_ns))
        notes.append(f"the last read or write was at {last}, the end at {end}")
    ticks = axis.elapsed() if lanes else []
    return {"name": label(one), "lanes": lanes, "ticks": ticks, "legend": legend, "note": "; ".join(notes)}


def axis_of(one: Checkpoint, points: Iterable[Progress]) -> Axis:
    """Return the axis from the start of a checkpoint to its last point."""
    edges = [edge for point in points for edge in (point.start_ns, point.end_ns)]
    return Axis(min([one.start_ns, *edges]), max(edges, default=one.end_ns))


def lane_top(stream: Stream) -> int:
    """Return the offset at the top of a lane: the end of the file, or the highest observed offset."""
    return max(stream.size or 0, 1, *(point.high_offset for point in stream.progress))


def _lane(stream: Stream, axis: Axis, rank: int | None, common: str | None) -> dict[str, Any]:
    top = lane_top(stream)
    boxes: dict[str, str] = {}
    lines: dict[str, str] = {}
    samples = ""
    for point in stream.progress:
        x, until = axis.x(point.start_ns), axis.x(point.end_ns)
        low, high = (round(HEIGHT * (1 - offset / top), 2) for offset in (point.low_offset, point.high_offset))
        if point.bytes is None:
            samples += f"M{x:g} {low:g}h0"
            continue
        style = STYLES[point.order][0]
        if point.order in (Succession.NEXT, Succession.ON):
            lines[style] = lines.get(style, "") + f"M{x:g} {low:g}L{until:g} {high:g}"
        else:
            boxes[style] = boxes.get(style, "") + f"M{x:g} {low:g}H{until:g}V{high:g}H{x:g}z"
    process = f"{clean(stream.comm)} {stream.pid}" if rank is None else f"rank {rank}"
    name = clean(stream.path.removeprefix(common or "")) if common else clean(stream.path.rpartition("/")[2])
    return {
        "who": process,
        "file": name,
        "scale": units.size(top),  # the offset at the top; 0 is at the bottom
        "boxes": list(boxes.items()),  # class and path: between when and when, and which offsets
        "lines": list(lines.items()),  # forward progress, from the corner where it started to that where it ended
        "looks": samples,
    }
