"""What is drawn equals what `--json` tells: numbers and lengths, read back out of the page."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from datetime import timezone
from typing import Any

import msgspec
import pytest
from tests.report.html.seen import SECOND, Seen, times

from ckptprof.model import Checkpoint, Pattern, Report, Watched
from ckptprof.report import colours, comparison, diff, document
from ckptprof.report.comparison import Side
from ckptprof.report.html.axis import WIDTH, axis_of
from ckptprof.report.html.difference import HEIGHT
from ckptprof.report.html.lanes import label
from ckptprof.report.html.page import render, render_difference
from ckptprof.verdicts import Account, Limit

COLUMNS = (
    "ID",
    "Time",
    "Kind",
    "Step",
    "Job",
    "Duration",
    "Limit",
    "Mode",
    "Blocked",
    "Size",
    "Rate",
    "Pattern",
    "Path",
)
REPORTS = ("run", "host", "course", "copies", "limits", "fine")


def told_of(report: Report) -> list[dict[str, Any]]:
    """Return the checkpoints of the document of `report --json`."""
    text = document.dump(document.report_document(report))
    checkpoints: list[dict[str, Any]] = json.loads(text)["checkpoints"]
    return checkpoints


@pytest.mark.parametrize("name", REPORTS)
def test_each_bar_has_the_times_of_the_document(name: str, reports: dict[str, Report], zone: timezone) -> None:
    """That of the checkpoint, of each time in which training was blocked, and of the time at risk."""
    report = reports[name]
    axis = axis_of(report.checkpoints, report.watched)
    assert axis is not None
    page = Seen(render(report, [], zone=zone))
    bars: dict[tuple[int, str], list[tuple[float, float]]] = defaultdict(list)
    for tag, told in page.elements:
        if tag == "rect" and "data-id" in told:
            style = (told["class"] or "").split()[0]
            lane = style if style in ("blocked", "risk") else "whole"
            place = times(axis, float(told["x"] or 0), float(told["width"] or 0))
            bars[int(told["data-id"] or 0), lane].append(place)

    def real(start_ns: int, end_ns: int) -> Any:
        whole = (axis.end_ns - axis.start_ns) / SECOND
        seconds = ((at_ns - axis.start_ns) / SECOND for at_ns in (start_ns, end_ns))
        return pytest.approx(tuple(seconds), abs=3e-6 * whole)  # a coordinate has three decimals

    for one in told_of(report):
        assert bars.pop((one["id"], "whole")) == [real(one["start_ns"], one["end_ns"])]
        assert bars.pop((one["id"], "blocked"), []) == [real(*span) for span in one["blocked"]]
        risk_ns = one["at_risk_ns"]
        expected = [real(one["durable_ns"] - risk_ns, one["durable_ns"])] if risk_ns else []
        assert bars.pop((one["id"], "risk"), []) == expected
    assert bars == {}


@pytest.mark.parametrize("name", REPORTS)
def test_each_row_has_the_numbers_of_the_document(name: str, reports: dict[str, Report], zone: timezone) -> None:
    """Those by which the table is sorted, which its texts are written from."""
    page = Seen(render(reports[name], [], zone=zone))
    keys = page.keys()
    checkpoints = told_of(reports[name])

    assert sorted(row for row in keys if row >= 0) == sorted(one["id"] for one in checkpoints)
    for one in checkpoints:
        row = dict(zip(COLUMNS, keys[one["id"]], strict=True))
        assert (int(row["ID"]), int(row["Time"]), row["Kind"]) == (one["id"], one["start_ns"], one["kind"])
        assert int(row["Duration"]) == one["end_ns"] - one["start_ns"]
        assert int(row["Blocked"]) == (-1 if one["stall_ns"] is None else one["stall_ns"])
        assert int(row["Size"]) == one["bytes"]
        assert int(row["Step"]) == (-1 if one["step"] is None else one["step"])
        assert row["Pattern"] == (one["pattern"]["class"] or "")


def test_each_part_of_an_account_has_the_length_of_its_seconds(reports: dict[str, Report], zone: timezone) -> None:
    """In the colour of its limit; the longest account is as wide as the drawing."""
    report = reports["limits"]
    page = Seen(render(report, [], zone=zone))
    longest = max(
        sum(part["seconds"] for part in one["verdict"]["accounts"]) for one in told_of(report) if one["verdict"]
    )
    for checkpoint, one in zip(sorted(report.checkpoints, key=lambda one: one.id), told_of(report), strict=True):
        sums: dict[str, float] = defaultdict(float)
        for part in one["verdict"]["accounts"]:
            sums[colours.css_class(None if part["limit"] is None else Limit(part["limit"]))] += part["seconds"]
        drawn = {rect["class"]: float(rect["width"] or 0) for rect in page.drawn(f"{label(checkpoint)}: ")}
        assert drawn == pytest.approx({style: 100 * seconds / longest for style, seconds in sums.items()}, abs=1e-3)


def test_what_waited_for_a_cpu_is_hatched(make_diagnosed: Callable[..., Checkpoint], zone: timezone) -> None:
    """In the colour of the work that waited, after its time on CPU."""
    made = make_diagnosed(1)
    assert made.verdict is not None
    account = Account(limit=Limit.SERIALIZE, seconds=4.0, text="compressing", runnable_seconds=3.0)
    verdict = msgspec.structs.replace(made.verdict, limit=Limit.SERIALIZE, seconds=4.0, accounts=(account,))
    report = Report(host="h", watched=Watched(start_ns=None, end_ns=None), checkpoints=(
        msgspec.structs.replace(made, verdict=verdict),))  # fmt: skip
    page = render(report, [], zone=zone)

    assert '<rect class="limit-serialize" x="0.0" width="25.0"' in page
    assert '<line class="limit-serialize hatched" x1="25.0" x2="100.0"' in page


def test_sizes_are_the_sums_of_the_document(
    make_checkpoint: Callable[..., Checkpoint], reports: dict[str, Report], zone: timezone
) -> None:
    """Each range has all operations of the powers of two in it, and what they moved; damaged ones are left out."""
    one = make_checkpoint(1, 10)
    sizes = {"512": [30, 20_000], "4096": [10, 60_000], "65536": [0, 0], "16777216": [60, 920_000], "x": [1, 1]}
    one = msgspec.structs.replace(one, pattern=msgspec.structs.replace(one.pattern, size_histogram=sizes))
    report = msgspec.structs.replace(reports["fine"], checkpoints=(one,))
    page = Seen(render(report, [], zone=zone))
    meters = [told for tag, told in page.elements if tag == "rect" and told["class"] in ("written", "other")]
    shares = [float(told["width"] or 0) for told in meters]

    assert shares[0::2] == pytest.approx([2, 6, 0, 0, 92])
    assert shares[1::2] == pytest.approx([30, 10, 0, 0, 60])


def test_the_order_is_that_of_the_document(
    make_checkpoint: Callable[..., Checkpoint], reports: dict[str, Report], zone: timezone
) -> None:
    """By bytes of all checkpoints, each with its own share; what had no order is not seen."""
    one, other, unseen = (make_checkpoint(number, 100 * number, bytes=1000) for number in (1, 2, 3))
    shares = {"order_known_share_bytes": 0.8, "consecutive_share_bytes": 0.25, "sequential_share_bytes": 0.75}
    one = msgspec.structs.replace(one, pattern=msgspec.structs.replace(one.pattern, **shares))
    shares = {"order_known_share_bytes": None, "consecutive_share_bytes": 1.0, "sequential_share_bytes": 1.0}
    other = msgspec.structs.replace(other, pattern=msgspec.structs.replace(other.pattern, **shares))
    unseen = msgspec.structs.replace(unseen, pattern=Pattern(class_=None))
    report = msgspec.structs.replace(reports["fine"], checkpoints=(one, other, unseen))
    parts = Seen(render(report, [], zone=zone)).drawn("bytes: ")
    told = [one["pattern"] for one in told_of(report)]

    expected = {"order-next": 0.8 * 0.25 + 1, "order-on": 0.8 * 0.5, "order-back": 0.8 * 0.25, "gap": 0.2 + 1}
    assert [one["sequential_share_bytes"] for one in told] == [0.75, 1.0, None]
    assert {part["class"]: float(part["width"] or 0) for part in parts} == pytest.approx(
        {style: 100 * share / 3 for style, share in expected.items()}, abs=1e-3
    )


@pytest.fixture
def difference(make_diagnosed: Callable[..., Checkpoint], reports: dict[str, Report]) -> comparison.Comparison:
    """Return two runs of five saves, the second a quarter slower, with other limits."""
    sides = []
    for name, times_ns, limit in (("a<b>.db", 4_000_000_000, Limit.SERIALIZE), ("b.db", 5_000_000_000, Limit.DEVICE)):
        saves = []
        for number in range(1, 6):
            one = make_diagnosed(number, 100 * number, limit=limit)
            saves.append(msgspec.structs.replace(one, end_ns=one.start_ns + times_ns + number * 10_000_000))
        sides.append(Side(name, msgspec.structs.replace(reports["limits"], checkpoints=tuple(saves))))
    return comparison.compare(*sides)


def test_a_difference_is_that_of_its_document(difference: comparison.Comparison, zone: timezone) -> None:
    """Where the interval of each change lies on its scale, how high each save is, and how often each limit was."""
    page = Seen(render_difference(difference, zone=zone))
    (kind,) = json.loads(document.dump(diff.document(difference)))["kinds"]
    changes = {one["name"]: one for one in kind["figures"] if one["relative"]["low"] is not None}
    scale = max(abs(one["relative"][edge]) for one in changes.values() for edge in ("low", "high", "estimate"))
    rects = [told for tag, told in page.elements if tag == "rect"]
    spans = [one for one in rects if one["class"] in ("worse", "better", "noise") and one["height"] == "4"]

    assert len(spans) == len(changes) > 1
    for span, one in zip(spans, changes.values(), strict=True):
        low, width = float(span["x"] or 0), float(span["width"] or 0)
        told = [(at - 50) / 50 * scale for at in (low, low + width)]
        assert told == pytest.approx([one["relative"]["low"], one["relative"]["high"]], abs=1e-4 * scale)
        assert (span["class"] == "worse") == (one["outcome"] in diff.BAD)
    assert changes["duration"]["outcome"] == "slower"

    for name, side in (("before", difference.before), ("after", difference.after)):
        heights = [float(rect["height"] or 0) for rect in page.drawn(f"Saves {name}")]
        assert heights == pytest.approx(
            [(one.end_ns - one.start_ns) / 5.05e9 * HEIGHT for one in side.report.checkpoints], abs=0.01
        )
        begins = [float(rect["x"] or 0) for rect in page.drawn(f"Saves {name}")]
        assert begins == pytest.approx([100 * number / 405.05 * WIDTH for number in range(5)], abs=0.01)
    counts = [(one["limit"], one["before"], one["after"]) for one in kind["limits"]]
    assert sorted(counts) == [("device", 0, 5), ("serialize", 5, 0)]
    assert page.texts["h1"] == "a<b>.db and b.db"
