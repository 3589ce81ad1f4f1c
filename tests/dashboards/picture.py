"""Draws docs/dashboard.png: `python tests/dashboards/picture.py docs/dashboard.png`.

Three made-up nodes train and save for six hours, one of them falls silent: the exporter's own code says so, a real
Prometheus is asked each query of the committed dashboard, and Chromium draws the answers after Grafana's panels, which
itself may not be installed here.
"""

from __future__ import annotations

import html
import json
import random
import re
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client import generate_latest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "dashboards")]
from queries import LIMIT_COLOURS  # noqa: E402 - found by the line above
from tests.dashboards import busy_node  # noqa: E402 - likewise
from tests.patience import wait_until  # noqa: E402 - likewise

from ckptprof.export.metrics import Metrics  # noqa: E402 - likewise
from ckptprof.model import Kind  # noqa: E402 - likewise
from ckptprof.verdicts import Account, Cost, Limit, Verdict  # noqa: E402 - likewise

END = 1_795_600_800  # 2026-11-25 10:00 UTC
HOURS, STEP = 6, 60
WIDTH, CELL, GAP = 1280, 30, 8
ROWS = 37  # cells of the grid that are drawn
SERIES = ("#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#b877d9", "#8ab8ff")
# name, seconds between saves, when the first is, seconds of a save, limit, when it falls silent
NODES = (
    ("node-1", 900, 120, 22.0, Limit.SERIALIZE, None),
    ("node-2", 900, 480, 26.0, Limit.DEVICE, None),
    ("node-3", 1800, 600, 64.0, Limit.NETWORK, END - 70 * 60),
)


def samples() -> Iterator[str]:
    """Yield what each node's page has at each minute, as OpenMetrics with times."""
    pages: dict[str, list[str]] = {}
    for name, every, first, took, limit, silent in NODES:
        chance = random.Random(name)  # noqa: S311 - no secret
        metrics = Metrics()
        busy_node.describe(metrics)
        for tick in range(HOURS * 3600 // STEP + 1):
            at = END - HOURS * 3600 + tick * STEP
            if silent is not None and at > silent:
                break
            metrics.observe(busy_node.frame(tick + 1, at * 10**9))
            metrics.recorder(busy_node.health(tick + 1))
            if tick == 1:
                metrics.checkpoint(busy_node.checkpoint(0, Kind.RESTORE, at * 10**9))
            if tick * STEP % every == first:
                metrics.checkpoint(save(tick, at, took * chance.choice((0.8, 0.9, 1, 1, 1.1, 1.9)), limit))
            for line in generate_latest(metrics).decode().splitlines():
                if found := re.match(r"(ckptprof_\w+)(?:\{(.*)\})? (\S+)$", line):
                    labels = ",".join(filter(None, (f'instance="{name}",job="ckptprof"', found[2])))
                    pages.setdefault(found[1], []).append(f"{found[1]}{{{labels}}} {found[3]} {at}")
    for lines in pages.values():
        yield from lines


def save(number: int, at: int, took: float, limit: Limit) -> Any:
    """Return a save that this limit held for most of its time, or a short one that nothing did."""
    fine = number % 4 == 3
    made = busy_node.checkpoint(number, Kind.SAVE, at * 10**9)
    limit = Limit.NONE if fine else limit
    took = 9.0 if fine else took
    parts = (Account(limit=limit, seconds=0.7 * took, text=""), Account(limit=Limit.CPU, seconds=0.1 * took, text=""),
             Account(limit=None, seconds=0.2 * took, text=""))  # fmt: skip
    verdict = Verdict(limit=limit, sentence="", confidence=0.86, seconds=took, accounts=parts, evidence=(), excluded=(),
                      expected_seconds=0.3 * took)  # fmt: skip
    return msgspec.structs.replace(
        made, start_ns=made.end_ns - int(took * 1e9), stall_ns=int(0.9 * took * 1e9), verdict=verdict,
        durable_ns=made.end_ns + 10**9, cost=Cost(gpus=8, gpu_seconds=8 * 0.9 * took),
    )  # fmt: skip


class Asked:
    """A Prometheus with six hours of them."""

    def __init__(self, port: int) -> None:
        """Ask it on loopback."""
        self._url = f"http://127.0.0.1:{port}/api/v1/"

    def __call__(self, expression: str, *, course: bool = False) -> list[dict[str, Any]]:
        """Return the series at the end, or over all the time."""
        values = {"$__rate_interval": "5m", "$__range_s": str(HOURS * 3600), "$__range": f"{HOURS}h"}
        for name, value in (values | {"$cluster": ".*", "$job": ".+", "$instance": ".+"}).items():
            expression = expression.replace(name, value)
        times = {"start": END - HOURS * 3600, "end": END, "step": 120} if course else {"time": END}
        query = urllib.parse.urlencode({"query": expression, **times})
        with urllib.request.urlopen(f"{self._url}query{'_range' * course}?{query}") as answer:  # noqa: S310 - loopback
            result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return result


def worded(value: float, unit: str) -> str:
    """Return a figure as Grafana words it."""
    if unit.startswith("suffix:"):
        return f"{value:.3g} {unit[7:]}"
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    if unit == "s":
        for length, name in ((3600, "hours"), (60, "mins")):
            if value >= length:
                return f"{value / length:.3g} {name}"
        return f"{value:.3g} s"
    if unit in ("decbytes", "Bps"):
        for power, name in ((12, "TB"), (9, "GB"), (6, "MB")):
            if value >= 10**power:
                return f"{value / 10**power:.3g} {name}"
    return f"{value:.4g}"


def graded(value: float, thresholds: dict[str, Any]) -> str:
    """Return the colour of the last threshold that it reaches."""
    colour = "green"
    for step in thresholds.get("steps", []):
        if step["value"] is None or value >= step["value"]:
            colour = step["color"]
    return {"green": "#73bf69", "red": "#f2495c"}.get(colour, colour)


def legend(target: dict[str, Any], labels: dict[str, str]) -> str:
    """Return the name of a series."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), target["legendFormat"])


def x_of(at: float, width: float) -> float:
    """Return where a time stands."""
    return (at - (END - HOURS * 3600)) / (HOURS * 3600) * width


def panel(asked: Asked, one: dict[str, Any]) -> str:
    """Return the body of a panel."""
    place = one["gridPos"]
    width, height = place["w"] / 24 * WIDTH - GAP - 20, place["h"] * (CELL + GAP) - GAP - 44
    unit = one["fieldConfig"]["defaults"].get("unit", "short")
    course = one["type"] in ("timeseries", "state-timeline", "heatmap")
    found = [(target, series) for target in one["targets"] for series in asked(target["expr"], course=course)]
    if not found:
        return f'<p class="none">{html.escape(one["fieldConfig"]["defaults"].get("noValue", "none yet"))}</p>'
    return DRAWN[one["type"]](one, found, unit, width, height)


def stat(one: dict[str, Any], found: list[Any], unit: str, _: float, __: float) -> str:
    """Draw one or two figures."""
    defaults = one["fieldConfig"]["defaults"]
    size = 24 if len(found) == 1 else 15
    cells = ""
    for target, series in found:
        value = float(series["value"][1])
        name = f"<small>{legend(target, series['metric'])}</small>" if len(found) > 1 else ""
        style = f"color:{graded(value, defaults.get('thresholds', {}))};font-size:{size}px"
        cells += f'<div>{name}<b style="{style}">{worded(value, unit)}</b></div>'
    return f'<div class="stat">{cells}</div>'


def table(one: dict[str, Any], found: list[Any], _: str, __: float, ___: float) -> str:
    """Draw a line for each node."""
    organize = one["transformations"][-1]["options"]
    overrides = {each["matcher"]["options"]: each["properties"] for each in one["fieldConfig"]["overrides"]}
    titles = [target["legendFormat"] for target in one["targets"] if target["legendFormat"]]
    titles = ["node", *titles[:4], "limit", "confidence", *titles[4:]]
    lines: dict[str, dict[str, str]] = {}
    order: dict[str, float] = {}
    for target, series in found:
        node = series["metric"].get("instance", "")
        line = lines.setdefault(node, {"node": f"<i>{node}</i>"})
        name, value = target["legendFormat"], float(series["value"][1])
        if not name:
            colour = LIMIT_COLOURS[series["metric"]["limit"]]
            line["limit"] = f'<span style="color:{colour}">{series["metric"]["limit"]}</span>'
            line["confidence"] = series["metric"].get("confidence", "")
            continue
        if name == titles[1]:
            order[node] = value
        properties = {each["id"]: each["value"] for each in overrides.get(name, [])}
        if "mappings" in properties:
            shown = properties["mappings"][0]["options"].get(f"{value:.0f}", {"text": "", "color": ""})
            line[name] = f'<span style="color:{shown["color"]}">{shown["text"]}</span>'
        else:
            colour = graded(value, properties["thresholds"]) if "thresholds" in properties else "#ccccdc"
            line[name] = f'<span style="color:{colour}">{worded(value, properties["unit"])}</span>'
    assert organize["renameByName"]["instance"] == "node"
    rows = sorted(lines, key=lambda node: -order.get(node, 0))
    head = "".join(f"<th>{title}{' ↓' * (title == titles[1])}</th>" for title in titles)
    body = "".join("<tr>" + "".join(f"<td>{lines[row].get(t, '')}</td>" for t in titles) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _axis(width: float, height: float, left: float) -> str:
    marks = ""
    for hour in range(HOURS + 1):
        x = left + (width - left) * hour / HOURS
        anchor = "end" if hour == HOURS else "middle" if hour else "start"
        clock = f"{(END // 3600 - HOURS + hour) % 24:02d}:00"
        marks += f'<line x1="{x}" x2="{x}" y1="0" y2="{height - 18}" stroke="#2c3035"/>'
        marks += f'<text x="{x}" y="{height - 4}" text-anchor="{anchor}">{clock}</text>'
    return marks


def lines(one: dict[str, Any], found: list[Any], unit: str, width: float, height: float) -> str:
    """Draw curves with their names below."""
    left, bottom = 84.0, height - 24
    holds = one["fieldConfig"]["defaults"]["custom"].get("lineInterpolation") == "stepAfter"
    points = [[(float(at), float(value)) for at, value in series["values"]] for _, series in found]
    most = 1.1 * max(value for each in points for _, value in each) or 1.0
    drawn, names = _axis(width, bottom, left), ""
    for level in range(5):
        y = (bottom - 18) * (1 - level / 4)
        drawn += f'<line x1="{left}" x2="{width}" y1="{y}" y2="{y}" stroke="#2c3035"/>'
        drawn += f'<text x="{left - 6}" y="{max(y + 4, 10)}" text-anchor="end">{worded(most * level / 4, unit)}</text>'
    for number, ((target, series), each) in enumerate(zip(found, points, strict=True)):
        colour, path, before = SERIES[number % len(SERIES)], "", None
        for at, value in each:
            x, y = left + x_of(at, width - left), (bottom - 18) * (1 - value / most)
            path += f"H{x:.1f}V{y:.1f}" if holds and before is not None else f"{'L' if path else 'M'}{x:.1f} {y:.1f}"
            before = value
        drawn += f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        names += f'<tspan fill="{colour}">━ </tspan><tspan>{legend(target, series["metric"])}   </tspan>'
    return _svg(width, height, drawn + f'<text x="4" y="{height - 5}" xml:space="preserve">{names}</text>')


def states(one: dict[str, Any], found: list[Any], _: str, width: float, height: float) -> str:
    """Draw a row of colours for each series."""
    mapped = one["fieldConfig"]["defaults"]["mappings"][0]["options"]
    left, tall = 100.0, (height - 50) / len(found)
    drawn, used = _axis(width, height - 24, left), {}
    for number, (target, series) in enumerate(found):
        top = number * tall + 6
        name = legend(target, series["metric"])
        drawn += f'<text x="{left - 8}" y="{top + tall / 2}" text-anchor="end">{name}</text>'
        for at, value in series["values"]:
            shown = mapped[f"{float(value):.0f}"]
            used[shown["text"]] = shown["color"]
            x = left + x_of(float(at), width - left)
            wide = (width - left) * 120 / (HOURS * 3600) + 0.5
            drawn += f'<rect x="{x:.1f}" y="{top}" width="{wide:.1f}" height="{tall - 12}" fill="{shown["color"]}"/>'
    names = "".join(f'<tspan fill="{colour}">■ </tspan><tspan>{name}   </tspan>' for name, colour in used.items())
    return _svg(width, height, drawn + f'<text x="4" y="{height - 5}" xml:space="preserve">{names}</text>')


def bars(one: dict[str, Any], found: list[Any], unit: str, width: float, height: float) -> str:
    """Draw a bar for each series."""
    colours = {each["matcher"]["options"]: each["properties"][0]["value"]["fixedColor"]
               for each in one["fieldConfig"]["overrides"]}  # fmt: skip
    found = [pair for pair in found if float(pair[1]["value"][1]) > 0]
    most = max(float(series["value"][1]) for _, series in found)
    tall, drawn = min(44.0, height / len(found)), ""
    for number, (target, series) in enumerate(found):
        value, name, top = float(series["value"][1]), legend(target, series["metric"]), number * tall
        colour = colours.get(name, "#5794f2")
        wide = value / most * (width - 220)
        drawn += f'<text x="92" y="{top + tall / 2 + 4}" text-anchor="end">{name}</text>'
        box = f'x="100" y="{top + 4}" width="{wide:.1f}" height="{tall - 8}"'
        drawn += f'<rect {box} fill="{colour}" fill-opacity=".75"/>'
        drawn += (
            f'<text x="{108 + wide:.1f}" y="{top + tall / 2 + 5}" style="font-size:15px">{worded(value, unit)}</text>'
        )
    return _svg(width, height, drawn)


def heat(_: dict[str, Any], found: list[Any], __: str, width: float, height: float) -> str:
    """Draw how many saves ended in each bucket."""
    edges = sorted({float(series["metric"]["le"]) for _, series in found})
    grown = {float(series["metric"]["le"]): dict(series["values"]) for _, series in found}
    rows = [edge for edge in edges if 4 < edge < 400]
    left, tall = 64.0, (height - 24) / len(rows)
    drawn = _axis(width, height - 4, left)
    for number, edge in enumerate(rows):
        top = (len(rows) - 1 - number) * tall
        below = grown[edges[edges.index(edge) - 1]]
        drawn += f'<text x="{left - 6}" y="{top + tall / 2 + 4}" text-anchor="end">{worded(edge, "s")}</text>'
        for at, value in grown[edge].items():
            many = float(value) - float(below.get(at, 0))
            if many > 0.01:
                x = left + x_of(float(at), width - left)
                drawn += (f'<rect x="{x:.1f}" y="{top + 1:.1f}" width="6" height="{tall - 2:.1f}" fill="#5794f2" '
                          f'fill-opacity="{min(1, 0.25 + many / 2):.2f}"/>')  # fmt: skip
    return _svg(width, height, drawn)


def _svg(width: float, height: float, drawn: str) -> str:
    return f'<svg width="{width:.0f}" height="{height:.0f}">{drawn}</svg>'


DRAWN = {"stat": stat, "table": table, "timeseries": lines, "state-timeline": states, "bargauge": bars, "heatmap": heat}
STYLE = """
body{margin:0;background:#111217;color:#ccccdc;font:13px Inter,'DejaVu Sans',sans-serif}
section{position:absolute;background:#181b1f;border:1px solid #2c3035;border-radius:2px;box-sizing:border-box}
h2{font-size:14px;font-weight:500;margin:8px 10px 6px}
svg{margin:0 10px;display:block}
text{font-size:12px;fill:#ccccdc}
.row{position:absolute;font-size:15px;padding:6px}
.stat{display:flex;justify-content:space-around;text-align:center; align-items:center;height:84px;white-space:nowrap}
.stat small{display:block}
.none{padding:30px 10px}
table{width:calc(100% - 20px);margin:0 10px;border-collapse:collapse}
th{text-align:left;color:#6e9fff;font-weight:500}
th,td{padding:8px 6px;border-bottom:1px solid #2c3035}
i{color:#6e9fff;font-style:normal}
"""


def page(asked: Asked) -> str:
    """Return the dashboard's upper part as a page."""
    board = json.loads((ROOT / "dashboards/ckptprof-node.json").read_text(encoding="utf-8"))
    drawn = ""
    for one in board["panels"]:
        at = one["gridPos"]
        if at["y"] + at["h"] > ROWS:
            break
        left, top = at["x"] / 24 * WIDTH + GAP / 2, at["y"] * (CELL + GAP)
        box = f"left:{left:.0f}px;top:{top}px;width:{at['w'] / 24 * WIDTH - GAP:.0f}px"
        if one["type"] == "row":
            drawn += f'<div class="row" style="{box}">⌄ {one["title"]}</div>'
        else:
            box += f";height:{at['h'] * (CELL + GAP) - GAP}px"
            drawn += f'<section style="{box}"><h2>{html.escape(one["title"])}</h2>{panel(asked, one)}</section>'
    return f"<!doctype html><meta charset=utf-8><style>{STYLE}</style>{drawn}"


def main() -> None:
    """Make the series, ask for each panel, and draw the page."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "series").write_text("\n".join([*samples(), "# EOF\n"]))
        call = ["promtool", "tsdb", "create-blocks-from", "openmetrics", folder / "series", folder / "tsdb"]
        subprocess.run(call, check=True, stdout=subprocess.DEVNULL)
        (folder / "prometheus.yml").write_text("{}")
        command = ["prometheus", f"--config.file={folder / 'prometheus.yml'}", "--web.listen-address=127.0.0.1:19095"]
        command += [f"--storage.tsdb.path={folder / 'tsdb'}", "--storage.tsdb.retention.time=100y", "--log.level=error"]
        with subprocess.Popen(command) as server:
            try:
                asked = Asked(19095)
                wait_until(lambda: _answers(asked))
                (folder / "page.html").write_text(page(asked), encoding="utf-8")
            finally:
                server.terminate()
        size = f"--window-size={WIDTH},{ROWS * (CELL + GAP)}"
        shot = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", size]
        subprocess.run([*shot, f"--screenshot={sys.argv[1]}", folder / "page.html"], check=True, capture_output=True)


def _answers(asked: Asked) -> bool:
    try:
        return bool(asked("ckptprof_build_info"))
    except OSError:
        return False


if __name__ == "__main__":
    main()
