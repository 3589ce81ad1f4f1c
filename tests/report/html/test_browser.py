"""The page in a real browser: it asks for nothing, keeps its policy, is plain to everybody, and zooms and sorts."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timezone
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright
from tests.patience import PATIENCE_SECONDS

from ckptprof.model import Checkpoint, Interval, Progress, Report, Stream, Succession, Watched, Writer
from ckptprof.report.clean import clean
from ckptprof.report.comparison import Comparison, Side, compare
from ckptprof.report.html.axis import Axis, axis_of
from ckptprof.report.html.page import render, render_difference
from ckptprof.report.html.rates import CounterSeries
from ckptprof.verdicts import Verdict

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]

SECOND = 1_000_000_000
WIDER = "document.documentElement.scrollWidth - innerWidth"
LISTENING = """
    window.broken = [];
    addEventListener("securitypolicyviolation", event => broken.push(event.violatedDirective));
"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Return a browser for all of these tests."""
    with sync_playwright() as driver:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=sandbox, timeout=1000 * PATIENCE_SECONDS
        )
        yield browser
        browser.close()


class Opened:
    """A page, and what it did that it should not."""

    def __init__(self, browser: Browser, path: Path, **options: object) -> None:
        """Open it, without a network."""
        context = browser.new_context(offline=True, **options)  # type: ignore[arg-type] # by name
        context.set_default_timeout(1000 * PATIENCE_SECONDS)
        context.add_init_script(LISTENING)
        self.asked: list[str] = []
        self.said: list[str] = []
        context.on("request", lambda request: self.asked.append(request.url))
        context.on("console", lambda message: self.said.append(message.text))
        context.on("weberror", lambda error: self.said.append(str(error.error)))
        context.on("dialog", lambda dialog: (self.said.append(dialog.message), dialog.dismiss()))
        self.page: Page = context.new_page()
        self.page.goto(path.as_uri())

    def is_quiet(self) -> bool:
        """Return whether the page is all that was asked for, and nothing in it was refused or failed."""
        return len(self.asked) == 1 and self.said == [] and self.page.evaluate("window.broken") == []

    def text(self) -> str:
        """Return what can be read on it."""
        return self.page.inner_text("main")

    def stretches(self) -> set[str]:
        """Return what the drawings of the timeline show of it, from 0 to 1000."""
        boxes = self.page.eval_on_selector_all(
            "#timeline .lane svg[viewBox]", "all => all.map(one => one.getAttribute('viewBox'))"
        )
        return {" ".join(box.split()[::2]) for box in boxes}


@pytest.fixture
def opened(chromium: Browser, tmp_path: Path, zone: timezone) -> Iterator[Callable[..., Opened]]:
    """Return what opens the page of a report, or of a comparison, in a context of its own."""

    def made(told: Report | Comparison, *counted: CounterSeries, **options: object) -> Opened:
        path = tmp_path / "report.html"
        text = render(told, counted, zone=zone) if isinstance(told, Report) else render_difference(told, zone=zone)
        path.write_bytes(text.encode("utf-8", "backslashreplace"))
        return Opened(chromium, path, **options)

    yield made
    for context in chromium.contexts:
        context.close()


@pytest.fixture
def run(make_diagnosed: Callable[..., Checkpoint]) -> Report:
    """Return three saves by four ranks, the third rank late, with all that the timeline draws."""
    saves = []
    for number, seconds in ((1, 12), (2, 39), (3, 20)):
        one = make_diagnosed(number, 100 * number)
        one = msgspec.structs.replace(one, end_ns=one.start_ns + seconds * SECOND)
        ranks = tuple(
            Writer(pid=i, comm="p", bytes=1 << 20, rank=i, start_ns=one.start_ns, end_ns=one.end_ns - early * SECOND)
            for i, early in enumerate((4, 1, 0, 1))
        )
        pattern = msgspec.structs.replace(one.pattern, size_histogram={"1048576": [26_000_000, 10**15], "1": [4, 9]})
        times = {"stall_ns": seconds * SECOND, "durable_ns": one.end_ns + 30 * SECOND}
        held = (Interval(one.start_ns, one.end_ns),)
        saves.append(msgspec.structs.replace(one, writers=ranks, pattern=pattern, blocked=held, ranks=4, **times))
    watched = Watched(start_ns=saves[0].start_ns - 60 * SECOND, end_ns=saves[-1].end_ns + 60 * SECOND)
    return Report(host="node-1", watched=watched, checkpoints=tuple(saves))


def streamed(report: Report, name: str = "/d/model.pt") -> Report:
    """Return it with the offsets of its second checkpoint: of each order a stretch, and a look."""
    first, one, *others = report.checkpoints
    orders = (*Succession, None)
    points = [
        Progress(one.start_ns + at * SECOND, one.start_ns + (at + 1) * SECOND, 9, 25 * at, 25 * (at + 1), order, 1)
        for at, order in enumerate(orders)
    ]
    look = Progress(one.start_ns + 2 * SECOND, one.start_ns + 2 * SECOND, None, 50, 50)
    streams = tuple(
        Stream(pid=pid, comm=name, path=f"{name}/{pid}", bytes=100, size=100, start_ns=one.start_ns, end_ns=one.end_ns,
               progress=(*points, look))
        for pid in range(6)
    )  # fmt: skip
    one = msgspec.structs.replace(one, streams=streams, progress_left_out=2)
    return msgspec.structs.replace(report, checkpoints=(first, one, *others))


def disk(report: Report) -> CounterSeries:
    """Return what a disk counted meanwhile."""
    start_ns = report.checkpoints[0].start_ns
    at = [start_ns + second * SECOND for second in range(0, 240, 10)]
    return CounterSeries("disk:vda", at, {"write_sectors": [second * 10**6 for second in range(24)]})


def axis_of_report(report: Report) -> Axis:
    """Return the axis of its timeline."""
    axis = axis_of(report.checkpoints, report.watched)
    assert axis is not None
    return axis


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_asks_for_nothing_and_hides_from_nobody(
    scheme: str, run: Report, reports: dict[str, Report], opened: Callable[..., Opened]
) -> None:
    """One request, nothing refused by its policy, no error, and axe finds nothing, whatever was recorded."""
    others = {"light": ("host", "blank"), "dark": ("course",)}[scheme]
    one_save = msgspec.structs.replace(run, checkpoints=streamed(run).checkpoints[1:2])
    for name, report in (("all", run), ("streams", one_save), *((name, reports[name]) for name in others)):
        counted = [disk(report)] if report.checkpoints else []
        one = opened(report, *counted, color_scheme=scheme, viewport={"width": 800, "height": 900})
        found = Axe().run(one.page).response["violations"]
        assert one.is_quiet(), (name, one.asked, one.said)
        assert [(two["id"], [node["html"] for node in two["nodes"]]) for two in found] == [], name


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_so_does_a_difference(
    scheme: str, run: Report, hostile_names: tuple[str, ...], opened: Callable[..., Opened]
) -> None:
    """Whatever the two runs are called."""
    sides = [Side("".join(hostile_names[:40]), run), Side("<img src=x onerror=alert(1)>", run)]
    one = opened(compare(*sides), color_scheme=scheme, viewport={"width": 400, "height": 900})
    found = Axe().run(one.page).response["violations"]
    assert one.is_quiet(), (one.asked, one.said)
    assert [(two["id"], [node["html"] for node in two["nodes"]]) for two in found] == []
    assert one.page.locator("script").count() == 1
    assert one.page.locator("img").count() == 0
    assert one.page.evaluate(WIDER) == 0


@pytest.mark.parametrize("width", [1280, 800, 400])
def test_nothing_is_wider_than_the_screen(width: int, run: Report, opened: Callable[..., Opened]) -> None:
    """What is, as the table, scrolls by itself."""
    one_save = msgspec.structs.replace(run, checkpoints=streamed(run).checkpoints[1:2])
    for report in (run, one_save):
        assert opened(report, disk(run), viewport={"width": width, "height": 900}).page.evaluate(WIDER) == 0


def test_a_hostile_name_is_text(
    hostile_names: tuple[str, ...],
    run: Report,
    make_diagnosed: Callable[..., Checkpoint],
    opened: Callable[..., Opened],
) -> None:
    """The whole corpus, wherever a page shows a name: no script runs, no element appears, no form is changed."""
    saves = []
    for number, name in enumerate(hostile_names, 1):
        one = make_diagnosed(number, 100 * number)
        assert one.verdict is not None
        told: Verdict = msgspec.structs.replace(one.verdict, sentence=name, remedy=name, evidence=(name,))
        writers = (Writer(pid=1, comm=name, bytes=1, rank=0), Writer(pid=2, comm=name, bytes=1, rank=1))
        saves.append(
            msgspec.structs.replace(one, job=name, path=name, limitations=(name,), verdict=told, writers=writers)
        )
    whole = msgspec.structs.replace(run, host=hostile_names[24], checkpoints=tuple(saves))
    alone = msgspec.structs.replace(whole, checkpoints=streamed(whole, "".join(hostile_names)).checkpoints[1:2])
    for report in (whole, alone):
        assert opened(report, viewport={"width": 400, "height": 900}).page.evaluate(WIDER) == 0
    one = opened(whole, replace(disk(whole), entity="disk:<img src=x onerror=alert(2)>"))
    cells = one.page.eval_on_selector_all("#table tbody tr:first-child", "all => all.map(r => r.cells[3].textContent)")

    assert one.is_quiet(), (one.asked, one.said)
    assert [cell.strip() for cell in cells] == [clean(name).strip() for name in hostile_names]
    assert one.page.locator("script").count() == 1
    assert one.page.locator("img, iframe, object, embed, link, base, form, [style], [onerror]").count() == 0


def numbers(text: str) -> list[str]:
    """Return the numbers of a text in their order."""
    return re.findall(r"\d[\d.,:]*", text)


def test_without_script_and_on_paper_every_number_is_there(run: Report, opened: Callable[..., Opened]) -> None:
    """On paper in dark on white, and with what is folded on the screen."""
    options = {"color_scheme": "dark", "viewport": {"width": 1280, "height": 900}}
    live = opened(run, disk(run), **options)
    still = opened(run, disk(run), java_script_enabled=False, **options)
    on_screen = numbers(live.text())
    assert numbers(still.text()) == on_screen
    assert "Drag to zoom" in live.text()
    assert "Drag to zoom" not in still.text()

    still.page.emulate_media(media="print")
    on_paper = numbers(still.text())
    assert not set(on_screen) - set(on_paper)
    folded = "9 of 12 looks in crc32"
    assert folded in still.text()
    assert folded not in live.text()
    colours = still.page.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    assert colours == ["rgb(255, 255, 255)", "rgb(0, 0, 0)"]


def drag(page: Page, begin: float, end: float) -> None:
    """Draw the mouse over a share of the first lane."""
    box = page.locator("#timeline .lane svg[viewBox]").first.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * begin, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * end, y, steps=3)
    page.mouse.up()


def test_a_drag_zooms_and_a_click_opens(run: Report, opened: Callable[..., Opened]) -> None:
    """All lanes and curves show the same stretch, under times that are true of it; Escape, and printing, show all."""
    one = opened(run, disk(run), viewport={"width": 1280, "height": 900})
    page, axis = one.page, axis_of_report(run)
    assert one.stretches() == {"0 1000"}
    written = page.inner_text(".axis")

    drag(page, 0.25, 0.5)
    (stretch,) = one.stretches()
    low, width = map(float, stretch.split())
    assert (low, width) == pytest.approx((250, 250), abs=2)

    ticks = page.eval_on_selector_all(
        ".axis text", "all => all.map(t => [parseFloat(t.getAttribute('x')), t.textContent])"
    )
    assert len(ticks) > 1
    for percent, text in ticks:
        at_ns = axis.start_ns + (low + percent / 100 * width) / 1000 * (axis.end_ns - axis.start_ns)
        seconds = (at_ns / SECOND + 3600) % 86400  # zone: UTC+01:00
        hours, minutes, *rest = (float(part) for part in text.split(":"))
        assert hours * 3600 + minutes * 60 + sum(rest) == pytest.approx(seconds, abs=1e-3)

    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert one.stretches() == {"0 1000"}
    assert page.inner_text(".axis") == written
    for back in (lambda: page.keyboard.press("Escape"), page.get_by_role("button", name="Show all").click):
        drag(page, 0.1, 0.4)
        assert one.stretches() != {"0 1000"}
        back()
        assert one.stretches() == {"0 1000"}

    bar = page.locator(".plot rect[data-id='2']").first
    bar.click()
    page.wait_for_selector("#row-2 .more")  # no text is evaluated: the page forbids that
    assert page.locator(".more:visible").count() == 1
    assert page.url.endswith("#row-2")
    assert one.is_quiet()


def test_a_heading_sorts(run: Report, opened: Callable[..., Opened]) -> None:
    """By what a number is, and not by how it is written; each row keeps what is told under it."""
    one = opened(run)
    ids = "all => all.map(body => body.id)"

    def order() -> list[str]:
        return one.page.eval_on_selector_all("#table tbody", ids)

    assert order() == ["row-2", "row-3", "row-1"]  # by what they cost
    button = one.page.get_by_role("button", name="Duration")
    button.click()
    assert order() == ["row-1", "row-3", "row-2"]
    assert one.page.locator("th[aria-sort=ascending]").inner_text().startswith("Duration")
    button.click()
    assert order() == ["row-2", "row-3", "row-1"]
    assert one.page.locator("tbody .more").count() == 3


def test_a_page_is_read_in_a_meeting(make_diagnosed: Callable[..., Checkpoint], opened: Callable[..., Opened]) -> None:
    """Twenty saves, one slow: under 600 words and a screen and a half; its evidence, and the rest, open on demand."""
    saves = [make_diagnosed(number, 100 * number, stall_ns=39 * SECOND) for number in range(1, 21)]
    saves[11] = msgspec.structs.replace(saves[11], end_ns=saves[11].end_ns + 41 * SECOND)
    report = Report(host="node-1", watched=Watched(start_ns=None, end_ns=None), checkpoints=tuple(saves))
    one = opened(report, disk(report), viewport={"width": 1440, "height": 900})

    assert len(one.text().split()) < 600
    assert one.page.evaluate("document.documentElement.scrollHeight") <= 1350
    assert "save 12, step 1200, took 1 min 20 s, 2.0 times the median of 39.2 s" in one.text()
    assert not one.page.locator("details[open], .more:visible").count()


@pytest.mark.parametrize(("width", "most"), [(1440, 29), (390, 20)])
def test_letters_of_blocks_stand_apart(
    width: int, most: int, make_diagnosed: Callable[..., Checkpoint], opened: Callable[..., Opened]
) -> None:
    """Where there is no room for a letter it is left out: of thirty saves, two of which follow each other at once."""
    saves = tuple(make_diagnosed(n, 200 * n - 175 * (n == 2)) for n in range(1, 31))
    watched = Watched(start_ns=saves[0].start_ns, end_ns=saves[-1].end_ns)
    page = opened(Report(host="h", watched=watched, checkpoints=saves), viewport={"width": width, "height": 900}).page
    boxes = [one.bounding_box() for one in page.locator(".letters text").all() if one.is_visible()]
    edges = sorted((box["x"], box["x"] + box["width"]) for box in boxes if box)

    assert most / 2 < len(edges) <= most
    assert all(end <= start for (_, end), (start, _) in pairwise(edges))


def test_a_table_shows_that_it_scrolls(run: Report, opened: Callable[..., Opened]) -> None:
    """Its edge is shaded where there is more of it, until the end is reached."""
    one_save = msgspec.structs.replace(run, checkpoints=streamed(run).checkpoints[1:2])
    page = opened(one_save, viewport={"width": 240, "height": 900}).page
    table = page.locator("#files .scroll")
    before = table.screenshot()
    assert table.evaluate("one => one.scrollWidth > one.clientWidth")
    assert table.evaluate("one => getComputedStyle(one).backgroundAttachment") == "local, local, scroll, scroll"
    table.evaluate("one => { one.scrollLeft = one.scrollWidth; }")
    assert table.screenshot() != before


def test_a_path_is_readable_on_a_phone(run: Report, opened: Callable[..., Opened]) -> None:
    """Broken into few pieces; other columns give way."""
    one_save = msgspec.structs.replace(run, checkpoints=streamed(run, "/data/a-long-name.pt").checkpoints[1:2])
    one = opened(one_save, viewport={"width": 390, "height": 900})
    widths = one.page.eval_on_selector_all("#files .free", "all => all.map(cell => cell.clientWidth)")
    scrolls = one.page.locator("#files .scroll").evaluate("one => one.scrollWidth > one.clientWidth")
    names = one.page.eval_on_selector_all("#offsets .name", "all => all.map(cell => cell.clientWidth)")

    assert min(width for width in widths if width) >= 110
    assert not scrolls
    assert names[0] >= 200


def test_a_bar_stands_over_its_time(run: Report, opened: Callable[..., Opened]) -> None:
    """On the screen, to a pixel, between the times that are written under the axis."""
    one = opened(run, viewport={"width": 1280, "height": 900})
    axis = axis_of_report(run)
    frame = one.page.locator(".axis svg").bounding_box()
    assert frame is not None
    for save in run.checkpoints:
        box = one.page.locator(f".plot rect.blocked[data-id='{save.id}']").bounding_box()
        assert box is not None
        for x, at_ns in ((box["x"], save.start_ns), (box["x"] + box["width"], save.end_ns)):
            share = (at_ns - axis.start_ns) / (axis.end_ns - axis.start_ns)
            assert x == pytest.approx(frame["x"] + share * frame["width"], abs=1)


def test_an_offset_stands_over_its_time(run: Report, opened: Callable[..., Opened]) -> None:
    """A dot of the same width and height, where it was seen; zooming the timeline moves nothing of it."""
    save = streamed(run).checkpoints[1]
    report = msgspec.structs.replace(run, checkpoints=(save,))
    one = opened(report, viewport={"width": 1280, "height": 900})
    page = one.page
    lane = page.locator("#offsets .lane svg").first
    frame, axis = lane.bounding_box(), page.locator("#offsets .axis svg").bounding_box()
    assert frame is not None
    assert axis is not None
    dot = page.locator("#offsets .look").first.bounding_box()
    assert dot is not None
    share = 2 / 4  # of the time until the last operation
    assert (frame["x"], frame["width"]) == pytest.approx((axis["x"], axis["width"]), abs=1)
    assert dot["x"] + dot["width"] / 2 == pytest.approx(frame["x"] + share * frame["width"], abs=1)
    assert dot["y"] + dot["height"] / 2 == pytest.approx(frame["y"] + frame["height"] / 2, abs=1)
    drag(page, 0.25, 0.5)
    assert lane.get_attribute("viewBox") == "0 0 1000 40"
    assert one.stretches() != {"0 1000"}
    assert one.is_quiet()
