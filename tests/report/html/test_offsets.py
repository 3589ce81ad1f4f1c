"""The offsets of streams over time: what is drawn is what `show --json` tells, and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timezone
from typing import Any

import msgspec
import pytest
from tests.report.html.seen import SECOND, Seen

from ckptprof.model import Checkpoint, Progress, Report, Stream, Succession, Writer
from ckptprof.report import document
from ckptprof.report.html.axis import WIDTH, Axis
from ckptprof.report.html.offsets import HEIGHT, MAX_LANES, STYLES, axis_of, lane_top, offsets
from ckptprof.report.html.page import render

MIB = 1 << 20
HOSTILE = "</script><img src=x onerror=alert(1)>\u202e\x1b[31m"
Corners = tuple[float, float, float, float]  # seconds and offsets of two corners
_BOX = re.compile(r"M([\d.]+) ([\d.]+)H([\d.]+)V([\d.]+)H\1z")
_LINE = re.compile(r"M([\d.]+) ([\d.]+)L([\d.]+) ([\d.]+)")
_LOOK = re.compile(r"M([\d.]+) ([\d.]+)h0")


@pytest.fixture
def make_streamed(make_checkpoint: Callable[..., Checkpoint]) -> Callable[..., Checkpoint]:
    """Return a maker of a checkpoint of some ranks, the last of which ended last, with these points each."""

    def made(*points: tuple[Progress, ...], size: int | None = 100 * MIB, **changes: Any) -> Checkpoint:
        one = make_checkpoint(1, 10)
        shifted = [
            tuple(
                msgspec.structs.replace(p, start_ns=one.start_ns + p.start_ns, end_ns=one.start_ns + p.end_ns)
                for p in each
            )
            for each in points
        ]
        ranks = range(len(points))
        streams = tuple(
            Stream(pid=rank, comm="p", path=f"/d/rank_{rank}.pt", bytes=1, size=size, start_ns=one.start_ns,
                   end_ns=one.end_ns, progress=shifted[rank])
            for rank in ranks
        )  # fmt: skip
        writers = tuple(Writer(pid=rank, comm="p", bytes=1, rank=rank, end_ns=one.start_ns + rank) for rank in ranks)
        return msgspec.structs.replace(one, streams=streams, writers=writers, **changes)

    return made


@pytest.fixture
def laid_out(reports: dict[str, Report], zone: timezone) -> Callable[[Checkpoint], str]:
    """Return what makes the page of one checkpoint."""
    return lambda one: render(msgspec.structs.replace(reports["fine"], checkpoints=(one,)), [], zone=zone)


def lanes(page: Seen) -> dict[str, list[tuple[str, str]]]:
    """Return (class, path) of all that is drawn in each lane of offsets, by its label."""
    found: dict[str, list[tuple[str, str]]] = {}
    inside: list[tuple[str, str]] = []
    for tag, told in page.elements:
        if tag == "svg":
            inside, label = [], told.get("aria-label") or ""
            if "offsets from 0" in label:
                inside = found.setdefault(label, [])
        elif tag == "path":
            inside.append((told["class"] or "", told["d"] or ""))
    return found


def read(axis: Axis, top: int, corners: tuple[str, ...]) -> list[float]:
    """Return the times since the axis' begin, and the offsets, that coordinates stand for, in turn."""
    whole = (axis.end_ns - axis.start_ns) / SECOND
    return [
        float(one) / WIDTH * whole if place % 2 == 0 else (1 - float(one) / HEIGHT) * top
        for place, one in enumerate(corners)
    ]


POINTS = (
    Progress(0, 10**9, 20 * MIB, 0, 20 * MIB, Succession.NEXT, 1),
    Progress(15 * 10**8, 2 * 10**9, 10 * MIB, 20 * MIB, 60 * MIB, Succession.ON, 1),
    Progress(2 * 10**9, 3 * 10**9, 10 * MIB, 0, 60 * MIB, Succession.BACK, 1),
    Progress(3 * 10**9, 35 * 10**8, 9 * MIB, 60 * MIB, 90 * MIB, None, None),
)
LOOKS = tuple(Progress(at * 10**9, at * 10**9, None, at * 20 * MIB, at * 20 * MIB) for at in range(4))


def test_what_is_drawn_is_what_the_document_tells(
    make_streamed: Callable[..., Checkpoint], laid_out: Callable[[Checkpoint], str]
) -> None:
    """A line for each stretch that went forward, a box for others, a dot for each look; nothing between them."""
    one = make_streamed(POINTS, LOOKS)
    streams = json.loads(document.dump(document.checkpoint_document(one)))["checkpoint"]["streams"]
    drawn = lanes(Seen(laid_out(one)))
    axis = axis_of(one, [point for stream in one.streams for point in stream.progress])

    assert [label.partition(":")[0] for label in drawn] == ["rank 1, rank_1.pt", "rank 0, rank_0.pt"]
    for stream, told, paths in zip(one.streams, streams, reversed(list(drawn.values())), strict=True):
        top = lane_top(stream)

        def real(point: dict[str, Any], numbers: int = 4, top: int = top) -> Any:
            times = [(point[name] - axis.start_ns) / SECOND for name in ("start_ns", "end_ns")]
            ends = [times[0], point["low_offset"], times[1], point["high_offset"]]
            return pytest.approx(ends[:numbers], abs=top / HEIGHT / 100)

        boxes, lines, looks = ([], [], [])  # type: ignore[var-annotated] # (style, corners)
        for classes, path in paths:
            kind, _, style = classes.partition(" ")
            for pattern, found in ((_BOX, boxes), (_LINE, lines), (_LOOK, looks)):
                found += [(style, read(axis, top, match.groups())) for match in pattern.finditer(path)]
            assert kind in ("box", "line", "look")
        of_kind = {None if order is None else order.value: style for order, (style, _) in STYLES.items()}
        stretches = [point for point in told["progress"] if point["bytes"] is not None]

        assert sorted(boxes) == sorted(
            (of_kind[point["order"]], real(point)) for point in stretches if point["order"] not in ("next", "on")
        )
        assert sorted(lines) == sorted(
            (of_kind[point["order"]], real(point)) for point in stretches if point["order"] in ("next", "on")
        )
        assert looks == [("", real(point, 2)) for point in told["progress"] if point["bytes"] is None]


def test_a_lane_reaches_to_the_end_of_its_file(make_streamed: Callable[..., Checkpoint]) -> None:
    """Or as far as its process was seen, where that is more or the size is not known."""
    one = make_streamed((Progress(0, 1, 8, 0, 150 * MIB, Succession.NEXT, 1),))

    assert lane_top(one.streams[0]) == 150 * MIB
    assert lane_top(make_streamed(POINTS).streams[0]) == 100 * MIB
    assert lane_top(make_streamed(POINTS, size=None).streams[0]) == 90 * MIB
    assert lane_top(make_streamed((), size=0).streams[0]) == 1


def test_only_orders_that_are_drawn_are_explained(make_streamed: Callable[..., Checkpoint]) -> None:
    """In the key, by their colour."""
    one = offsets(make_streamed(POINTS[:1], LOOKS))
    other = offsets(make_streamed(POINTS))

    assert one is not None
    assert other is not None
    assert [style for style, _ in one["legend"]] == ["order-next", "look"]
    assert [style for style, _ in other["legend"]] == ["order-next", "order-on", "order-back", "order-unseen"]


def test_the_slowest_ranks_are_drawn_and_the_rest_is_counted(
    make_streamed: Callable[..., Checkpoint], laid_out: Callable[[Checkpoint], str]
) -> None:
    """With what the store left out, and what was not seen."""
    one = make_streamed(*[POINTS[:1]] * 20, (), (), (), progress_left_out=1)
    drawn = offsets(one)
    page = laid_out(one)

    assert drawn is not None
    assert [lane["who"] for lane in drawn["lanes"]] == [f"rank {rank}" for rank in range(19, 19 - MAX_LANES, -1)]
    assert "5 streams not shown" in page
    assert "no offsets recorded for 2 streams" in page


def test_where_no_offset_was_seen_that_is_said(
    make_streamed: Callable[..., Checkpoint], laid_out: Callable[[Checkpoint], str]
) -> None:
    """Without an empty drawing."""
    page = laid_out(make_streamed((), ()))

    assert lanes(Seen(page)) == {}
    assert "no offsets recorded for 2 streams" in page


def test_names_of_lanes_are_text(
    make_streamed: Callable[..., Checkpoint], laid_out: Callable[[Checkpoint], str]
) -> None:
    """Whatever a process called its file, and itself."""
    one = make_streamed(POINTS)
    stream = msgspec.structs.replace(one.streams[0], path=f"/d/{HOSTILE}", comm=HOSTILE)
    text = laid_out(msgspec.structs.replace(one, streams=(stream,), writers=()))

    assert "offsets from 0" in text
    assert not {tag for tag, _ in Seen(text).elements} & {"img"}
    assert "\u202e" not in text
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (4.12, ["0 s", "+1 s", "+2 s", "+3 s", "+4 s"]),
        (0.003, ["0 s", "+0.0005 s", "+0.001 s", "+0.0015 s", "+0.002 s", "+0.0025 s", "+0.003 s"]),
        (240, ["0 s", "+50 s", "+100 s", "+150 s", "+200 s"]),
        (0, ["0 s"]),
    ],
)
def test_times_are_since_the_begin(seconds: float, expected: list[str]) -> None:
    """Round ones, at most seven, at their place."""
    ticks = Axis(5 * SECOND, 5 * SECOND + int(seconds * SECOND)).elapsed()

    assert [tick.text for tick in ticks] == expected
    assert [tick.percent for tick in ticks] == pytest.approx(
        [100 * float(tick.text.strip("+ s")) / (seconds or 1) for tick in ticks], abs=1e-3
    )
