"""The page of `--html`: what is drawn was measured, what is hostile is inert, and what is too much is thinned."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from datetime import timezone
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from tests.report.html.seen import Seen, times

from ckptprof.measures import Measures, MountMeasure, OperationMeasure, PathMeasure, ServerMeasure
from ckptprof.model import Checkpoint, Interval, Report, Watched, Writer
from ckptprof.report.html.axis import WIDTH, Axis, axis_of
from ckptprof.report.html.lanes import MAX_BLOCKS, lanes, lateness_by_job, rank_lateness
from ckptprof.report.html.page import render
from ckptprof.report.html.rates import HEIGHT, CounterSeries, throughputs
from ckptprof.report.pictures import colours
from ckptprof.verdicts import Account, Limit, Verdict

SECOND = 1_000_000_000
HOSTILE = "</script><img src=x onerror=alert(1)>\u202e\x1b[31m"
GROUNDS = ("#ffffff", "#1b1f24")  # --panel of page.css


@pytest.fixture
def seen(zone: timezone) -> Callable[..., Seen]:
    """Return what reads the page of a report."""
    return lambda report, *counted: Seen(render(report, counted, zone=zone))


@pytest.fixture
def make_report() -> Callable[..., Report]:
    """Return a maker of reports of checkpoints that were watched from a minute before to a minute after."""

    def made(checkpoints: list[Checkpoint]) -> Report:
        begin = min((one.start_ns for one in checkpoints), default=60 * SECOND)
        end = max((one.end_ns for one in checkpoints), default=60 * SECOND)
        watched = Watched(start_ns=begin - 60 * SECOND, end_ns=end + 60 * SECOND)
        return Report(host="node-1", watched=watched, checkpoints=tuple(checkpoints))

    return made


def test_what_is_drawn_is_what_was_measured(
    seen: Callable[..., Seen], make_report: Callable[..., Report], make_checkpoint: Callable[..., Checkpoint]
) -> None:
    """Each rank's time, when training was blocked, and how long a save was at risk, read back out of the page."""
    one = make_checkpoint(1, 10)
    ends = [one.end_ns - number * SECOND for number in range(3)]
    ranks = tuple(Writer(pid=1, comm="p", bytes=1, rank=i, start_ns=one.start_ns, end_ns=e) for i, e in enumerate(ends))
    held = (Interval(one.start_ns, one.start_ns + SECOND), Interval(one.end_ns - SECOND, one.end_ns))
    changes: dict[str, Any] = {"writers": ranks, "blocked": held, "stall_ns": 2 * SECOND}
    one = msgspec.structs.replace(one, durable_ns=one.end_ns + 3 * SECOND, **changes)
    report = make_report([one])
    axis = axis_of([one], report.watched)
    assert axis is not None
    page = seen(report)

    def told(style: str) -> list[tuple[float, float]]:
        return sorted(times(axis, x, width) for _, x, width in page.bars(style))

    def real(start_ns: int, end_ns: int) -> Any:
        return pytest.approx(((start_ns - axis.start_ns) / SECOND, (end_ns - axis.start_ns) / SECOND), abs=0.01)

    assert told("blocked") == [real(span.start_ns, span.end_ns) for span in held]
    assert told("risk") == [real(one.durable_ns - (one.at_risk_ns or 0), one.durable_ns or 0)]
    drawn = told(colours.css_class(one.verdict and one.verdict.limit))
    spans = [(rank.start_ns or 0, rank.end_ns or 0) for rank in (*ranks, one)]
    assert drawn == [real(*span) for span in sorted(spans)]


def test_a_name_does_nothing_on_the_page(
    make_report: Callable[..., Report], make_checkpoint: Callable[..., Checkpoint], zone: timezone
) -> None:
    """It is text, without what turns text around; the policy lets only our script and style through, by their hash."""
    verdict = Verdict(
        limit=Limit.DEVICE, sentence=HOSTILE, confidence=0.9, seconds=1, evidence=(HOSTILE,), excluded=(),
        accounts=(Account(limit=Limit.DEVICE, seconds=1, text=HOSTILE),), remedy=HOSTILE,
    )  # fmt: skip
    writers = (Writer(pid=1, comm=HOSTILE, bytes=1),)
    one = make_checkpoint(1, 10, job=HOSTILE, path=HOSTILE, limitations=(HOSTILE,), verdict=verdict, writers=writers)
    report = msgspec.structs.replace(make_report([one]), host=HOSTILE)
    counted = CounterSeries(f"disk:{HOSTILE}", [one.start_ns, one.end_ns], {"write_sectors": [0, 10**6]})
    text = render(report, [counted], zone=zone)
    page = Seen(text)
    tags = {tag for tag, _ in page.elements}
    (policy,) = (told["content"] or "" for tag, told in page.elements if told.get("http-equiv"))

    assert not tags & {"img", "iframe", "object", "link", "base", "form"}
    assert not any(name == "style" or name.startswith("on") for _, told in page.elements for name in told)
    assert text.count("<script") == text.count("</script") == 1
    assert "\u202e" not in text
    assert "\x1b" not in text
    for tag in ("script", "style"):
        told = base64.b64encode(hashlib.sha256(page.texts[tag].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{told}'" in policy
    assert policy.startswith("default-src 'none'")
    assert not re.search(r"https?://|url\((?!#)", text)


@pytest.mark.parametrize("word", ["innerHTML", "eval", "Function(", "document.write", 'setAttribute("style"', "fetch("])
def test_the_script_makes_nothing_of_text(word: str, make_report: Callable[..., Report], zone: timezone) -> None:
    """So no name can become a script by it."""
    assert word not in Seen(render(make_report([]), [], zone=zone)).texts["script"]


def luminance(colour: str) -> float:
    """Return the relative luminance of WCAG 2.2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("limit", [*Limit, None])
@pytest.mark.parametrize("ground", GROUNDS)
def test_each_limit_stands_out(limit: Limit | None, ground: str) -> None:
    """By 3 to 1 from either ground (WCAG 1.4.11)."""
    low, high = sorted((luminance(colours.OF_LIMIT[limit].colour), luminance(ground)))

    assert (high + 0.05) / (low + 0.05) >= 3


def test_very_many_checkpoints_make_a_small_page(
    make_checkpoint: Callable[..., Checkpoint], make_report: Callable[..., Report], zone: timezone
) -> None:
    """The slowest are told, and that the others are not."""
    many = [make_checkpoint(number, 60 * number) for number in range(1, 2001)]
    many[1234] = msgspec.structs.replace(many[1234], end_ns=many[1234].end_ns + 30 * SECOND)
    report = make_report(many)
    text = render(report, [], zone=zone)
    page = Seen(text)
    rows = [told["id"] for tag, told in page.elements if tag == "tbody" and "id" in told]

    assert len(rows) == 200
    assert f"row-{many[1234].id}" in rows
    assert "The 200 slowest of 2,000 checkpoints." in text
    assert len(text) < 1_000_000


def test_a_lane_of_very_many_has_the_slowest_of_each_slice(
    make_checkpoint: Callable[..., Checkpoint], make_report: Callable[..., Report]
) -> None:
    """All along the run, with the times in which those blocked training; the lane says so."""
    many = []
    for number in range(4000):
        one = make_checkpoint(number + 1, 100 * number)
        held = (Interval(one.start_ns, one.start_ns + SECOND),)
        many.append(msgspec.structs.replace(one, blocked=held, stall_ns=SECOND))
    many[1234] = msgspec.structs.replace(many[1234], end_ns=many[1234].end_ns + SECOND)
    axis = axis_of(many, make_report(many).watched)
    assert axis is not None
    saves, blocked = lanes(many, axis, {})
    gaps = [after.x - before.x for before, after in pairwise(saves.bars)]

    assert len(saves.bars) == len(blocked.bars) <= MAX_BLOCKS
    assert many[1234].id in {bar.id for bar in saves.bars}
    assert max(gaps) < 2.1 * WIDTH / MAX_BLOCKS
    assert f"{len(saves.bars)} of 4,000" in saves.note


def test_ranks_of_very_many_are_drawn_all_along(
    make_checkpoint: Callable[..., Checkpoint], make_report: Callable[..., Report]
) -> None:
    """Of saves that are all alike the first would be all that is drawn, and the rest of the run would look idle."""
    ranks = tuple(Writer(pid=rank, comm="p", bytes=1, rank=rank) for rank in range(16))
    many = []
    for number in range(1000):
        one = make_checkpoint(number + 1, 900 * number)
        own = (
            msgspec.structs.replace(rank, start_ns=one.start_ns, end_ns=one.end_ns - (rank.rank or 0)) for rank in ranks
        )
        many.append(msgspec.structs.replace(one, writers=tuple(own)))
    many[500] = msgspec.structs.replace(many[500], end_ns=many[500].end_ns + SECOND)
    axis = axis_of(many, make_report(many).watched)
    assert axis is not None
    lane = next(one for one in lanes(many, axis, lateness_by_job(many)) if one.name == "rank 3")
    gaps = [after.x - before.x for before, after in pairwise(lane.bars)]

    assert 80 < len(lane.bars) <= 93
    assert max(gaps) < 2.1 * WIDTH / 93
    assert many[500].id in {bar.id for bar in lane.bars}


@pytest.mark.parametrize("days", [1, 200, 500, 1041, 20_000])
def test_an_axis_of_years_has_few_times_with_their_year(days: int) -> None:
    """However long it is."""
    start_ns = 1_700_000_000 * SECOND
    ticks = Axis(start_ns, start_ns + days * 86_400 * SECOND).ticks(timezone.utc)

    assert 2 <= len(ticks) <= 8
    assert all(tick.text.startswith("20") for tick in ticks) is (days >= 365)


def test_a_report_without_a_checkpoint_is_a_page(seen: Callable[..., Seen], make_report: Callable[..., Report]) -> None:
    """It says so."""
    page = seen(make_report([]))

    assert "No checkpoint was found in 2 min 00 s of recording." in page.texts["p"]


def test_a_curve_is_cut_where_nobody_watched() -> None:
    """And where a counter began anew; its height is the rate, and its area what was moved."""
    at = [number * SECOND for number in range(8)]
    sectors = [0, 2000, 4000, 4000, 8000, 8000, 0, 2000]
    axis = Axis(0, 8 * SECOND)
    (one,) = throughputs([CounterSeries("disk:sda", at, {"write_sectors": sectors})], axis, [(4 * SECOND, 5 * SECOND)])
    (written,) = one.curves  # nothing was read

    assert [path.count("M") for path in written.paths] == [1, 1]
    assert written.transferred_bytes == (8000 + 2000) * 512
    assert written.paths[0] == f"M0 {HEIGHT:g}V20H125V20H250V40H375V0H500V40Z"
    assert throughputs([CounterSeries("disk:sda", at, {"write_sectors": [0, 1] * 4})], axis, []) == []


def test_the_device_under_the_checkpoints_leads() -> None:
    """However little it moved; its scale ends at the 99th percentile, a bound above, or a peak that is not far."""
    at = [number * SECOND for number in range(201)]
    sums = [0]
    for number in range(200):
        sums.append(sums[-1] + (100_000 if number == 77 else 2000 + number % 3))
    small = CounterSeries("disk:vdb", at, {"write_sectors": sums})
    large = CounterSeries("disk:sda", at, {"write_sectors": [10 * one for one in sums]})
    axis = Axis(0, 200 * SECOND)
    whole, half = 200 * SECOND, 100 * SECOND
    one, other = throughputs([large, small], axis, [], {"vdb"}, ([(0, whole, 2_100_000.0)], "ceiling {}"))
    bounds = [(0, half, 515_000.0), (half, whole, 1_030_000.0)]
    (alone,) = throughputs([small], axis, [], {"vdb"}, (bounds, "throttle {}"))
    squares = {"write_sectors": [1000 * n**2 for n in range(201)]}
    (even,) = throughputs([CounterSeries("disk:vdb", at, squares)], axis, [])
    (first, *_) = throughputs([small, large], axis, [])

    assert (one.name, one.is_under, other.name, other.is_under) == ("vdb", True, "sda", False)
    assert (one.scale, one.line, other.line) == ("2.10 MB/s", ("M0 0H1000", "ceiling 2.10 MB/s"), ("", ""))
    assert (one.peak, one.clipped) == ("51.2 MB/s", "M387.5 0v4")
    assert "V0H390" in one.curves[0].paths[0]
    assert (alone.scale, alone.line) == ("1.03 MB/s", ("M0 20H500M500 0H1000", "throttle 515 kB/s to 1.03 MB/s"))
    assert (even.scale, even.peak, even.clipped) == ("204 MB/s", "", "")
    assert (first.name, first.is_under) == ("sda", True)


def test_what_is_the_same_in_all_rows_stands_once_above_them(
    seen: Callable[..., Seen], make_report: Callable[..., Report], make_checkpoint: Callable[..., Checkpoint]
) -> None:
    """And has no column."""
    page = seen(make_report([make_checkpoint(number, 60 * number) for number in (1, 2)]))
    assert "All: save, train.py, blocked not observed, limit not observed, " in page.texts["p"]
    assert page.heads == ["ID", "Time", "Step", "Duration", "Rate", "Path"]


def test_ranks_are_told_the_latest_first(make_checkpoint: Callable[..., Checkpoint]) -> None:
    """By the time after the middle one, in all."""
    saves = []
    for number in (1, 2):
        one = make_checkpoint(number, 100 * number)
        ends = [one.start_ns + seconds * SECOND for seconds in (1, 2, 2 + number)]
        ranks = [Writer(pid=1, comm="p", bytes=1, rank=i, start_ns=one.start_ns, end_ns=e) for i, e in enumerate(ends)]
        saves.append(msgspec.structs.replace(one, writers=tuple(ranks)))
    first, second, third = rank_lateness(saves)

    assert (first.rank, first.late_seconds, first.max_seconds, first.last, first.checkpoints) == (2, 3, 2, 2, 2)
    assert (second.late_seconds, third.late_seconds, second.last, third.last) == (0, 0, 0, 0)
    assert rank_lateness([make_checkpoint(1, 0)]) == []


def test_what_the_client_of_a_mount_counted_is_a_table_of_a_single_checkpoint(
    make_report: Callable[..., Report], make_checkpoint: Callable[..., Checkpoint], zone: timezone
) -> None:
    """Servers, then operations; names are text. Without such a client, and of several, there is none."""
    write = OperationMeasure(kind="WRITE", count=8192, seconds=0.068, queue_seconds=0.06, server_seconds=0.008)
    mount = MountMeasure(
        mount_point="/ckpt", fs_type="lustre", source="mgs:/x", remote=True, client="lustre 2.15", operations=(write,),
        per_server=(ServerMeasure(name=HOSTILE, written_bytes=10**9, operations=7, seconds=0.02),),
    )  # fmt: skip
    one = make_checkpoint(1, 10, measures=Measures(mount=mount))
    plain = make_checkpoint(2, 10, measures=Measures(mount=msgspec.structs.replace(mount, client=None)))
    page = Seen(render(make_report([one]), [], zone=zone))

    assert ("section", {"id": "mount"}) in page.elements
    assert "img" not in {tag for tag, _ in page.elements}
    for text in ("WRITE", "8,192", "68 ms", "60 ms", "8.0 ms", "1.00 GB", "20 ms"):
        assert text in page.texts["td"]
    for checkpoints in ([plain], [one, plain]):
        assert ("section", {"id": "mount"}) not in Seen(render(make_report(checkpoints), [], zone=zone)).elements


def test_the_paths_to_a_disk_behind_a_fabric_are_such_a_table(
    make_report: Callable[..., Report], make_checkpoint: Callable[..., Checkpoint], zone: timezone
) -> None:
    """As on a terminal, each with where it leads and how it is."""
    known = PathMeasure(device="nvme1c0n1", transport="tcp", target="10.0.0.2", port=4420, state="live")
    gone = PathMeasure(device=HOSTILE, transport="tcp", state="gone")
    mount = MountMeasure(
        mount_point="/ckpt", fs_type="ext4", source="/dev/nvme1n1", remote=False, paths=(known, gone)
    )  # fmt: skip
    one = make_checkpoint(1, 10, measures=Measures(mount=mount))
    page = Seen(render(make_report([one]), [], zone=zone))

    assert ("section", {"id": "mount"}) in page.elements
    assert "img" not in {tag for tag, _ in page.elements}
    for text in ("nvme1c0n1", "10.0.0.2 port 4420", "live", "gone"):
        assert text in page.texts["td"]
