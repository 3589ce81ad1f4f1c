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

from ckptprof import units
from ckptprof.model import Checkpoint, Report, Watched
from ckptprof.report import comparison, diff, document, show
from ckptprof.report.comparison import Side
from ckptprof.report.html.axis import WIDTH, axis_of
from ckptprof.report.html.lanes import HEIGHT, label
from ckptprof.report.html.page import render, render_difference
from ckptprof.report.pictures import colours
from ckptprof.verdicts import Account, Limit

REPORTS = ("run", "host", "course", "copies", "limits", "fine")


def told_of(report: Report) -> list[dict[str, Any]]:
    """Return the checkpoints of the document of `report --json`."""
    text = document.dump(document.report_document(report))
    checkpoints: list[dict[str, Any]] = json.loads(text)["checkpoints"]
    return checkpoints


def percent(width: str | None) -> float:
    """Return what stands before the sign."""
    return float((width or "0").removesuffix("%"))


def test_a_block_is_as_high_as_its_checkpoint_is_long(
    make_diagnosed: Callable[..., Checkpoint], reports: dict[str, Report], zone: timezone
) -> None:
    """The outlier has an outline and its name; the median and the blocked share are at their heights."""
    spent = (40, 39, 41, 40, 100)
    saves = []
    for number, seconds in enumerate(spent, 1):
        one = make_diagnosed(number, 200 * number, stall_ns=seconds * SECOND)
        saves.append(msgspec.structs.replace(one, end_ns=one.start_ns + seconds * SECOND))
    report = msgspec.structs.replace(reports["limits"], checkpoints=tuple(saves))
    text = render(report, [], zone=zone)
    page = Seen(text)
    blocks = page.drawn("saves: 5 bars, from 0 to 1 min 40 s")
    (outlier,) = (one for one in blocks if "outlier" in (one["class"] or ""))
    lines = {told["class"]: told["d"] for tag, told in page.elements if tag == "path" and told.get("class")}
    (share,) = (told for tag, told in page.elements if tag == "rect" and told.get("class") == "blocked")
    answer = document.report_document(report)

    assert [float(one["height"] or 0) / HEIGHT * 100 for one in blocks] == pytest.approx(spent, abs=0.02)
    assert outlier["data-id"] == str(answer["outliers"][0]["id"]) == "5"
    assert ">save 5: 2.5 times the median</text>" in text
    assert answer["outliers"][0]["sentence"] in text
    assert lines["median"] == f"M0 {HEIGHT * 0.6}H1000"
    assert float(share["height"] or 0) / 60 == pytest.approx(answer["jobs"][0]["share"], abs=1e-3)
    assert text.count(">Z</text>") >= 5


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
        row = keys[one["id"]]
        assert (int(row["ID"]), int(row["Time"])) == (one["id"], one["start_ns"])
        assert int(row["Duration"]) == one["end_ns"] - one["start_ns"]
        assert int(row.get("Blocked", -1)) == (-1 if one["stall_ns"] is None else one["stall_ns"])
        assert int(row.get("Step", -1)) == (-1 if one["step"] is None else one["step"])
        told = {"Kind": one["kind"], "Size": units.size(one["bytes"]), "Pattern": one["pattern"]["class"]}
        for column, text in told.items():  # in the row, or once above all rows where it is the same in all
            key = {"Size": str(one["bytes"])}.get(column, text or "")
            assert row.get(column, text) == (key if column in row else text)
            assert column in row or text is None or text in page.texts["p"]


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
        drawn = {rect["class"]: percent(rect["width"]) for rect in page.drawn(f"{label(checkpoint)}: ")}
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

    assert '<rect class="limit-serialize" x="0.0%" width="25.0%"' in page
    assert '<line class="limit-serialize hatched" x1="25.0%" x2="100.0%"' in page
    assert page.count('aria-hidden="true">Z</text>') == 1  # on stripes it could not be read


def test_the_pattern_of_a_single_checkpoint_is_that_of_show(
    make_checkpoint: Callable[..., Checkpoint], reports: dict[str, Report], zone: timezone
) -> None:
    """Folded, with the sizes of its operations; damaged ones are left out."""
    sizes = {"512": [30, 20_000], "16777216": [60, 920_000], "x": [1, 1], "4096": [9]}
    one = make_checkpoint(1, 10)
    one = msgspec.structs.replace(one, pattern=msgspec.structs.replace(one.pattern, size_histogram=sizes))
    page = Seen(render(msgspec.structs.replace(reports["fine"], checkpoints=(one,)), [], zone=zone))

    assert ("details", {"id": "sizes"}) in page.elements
    for _, text in show.pattern_facts(one.pattern):
        assert text in page.texts["dd"]
    for row in show.size_rows(one.pattern):
        assert "".join(cell.text or "" for cell in row) in page.texts["td"]
    assert ("details", {"id": "sizes"}) not in Seen(render(reports["fine"], [], zone=zone)).elements


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
