"""The committed dashboards: as generated, and clean by the rules of grafana/dashboard-linter."""

from __future__ import annotations

import importlib.util
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator
from prometheus_client import generate_latest
from tests.dashboards import busy_node

from ckptprof.assets import asset
from ckptprof.export.metrics import Metrics
from ckptprof.report.certainty import account_name
from ckptprof.verdicts import Limit

FOLDER = asset("dashboards")
DASHBOARDS = sorted(FOLDER.glob("*.json"))
FLEET, JOB, NODE = (FOLDER / f"ckptprof-{name}.json" for name in ("fleet", "job", "node"))
SCHEMA = Path(__file__).resolve().parents[1] / "fixtures/grafana/dashboard-11.6.json"
YELLOW = "#e0a020"
HIDDEN = 2  # a variable that only links and addresses set
GROUNDS = ("#ffffff", "#181b1f")  # of Grafana's light and dark panels
DEFAULT_EMPTY = "none yet"
RECORDED = re.compile(r"\b\w+:ckptprof_\w+:\w+")  # by a rule, of several instances together


def load(path: Path) -> dict[str, Any]:
    """Return a dashboard."""
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def panels(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return every panel that is no row."""
    every = [inner for panel in document["panels"] for inner in (panel, *panel.get("panels", ()))]
    return [panel for panel in every if panel["type"] != "row"]


def targets(document: dict[str, Any]) -> list[str]:
    """Return every expression."""
    return [target["expr"] for panel in panels(document) for target in panel["targets"]]


def titled(title: str, path: Path = NODE) -> dict[str, Any]:
    """Return a panel of a dashboard."""
    return next(panel for panel in panels(load(path)) if panel["title"] == title)


def queried(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the variables that are queried, by name, in order."""
    return {one["name"]: one for one in document["templating"]["list"] if one["type"] == "query"}


def exported_by(metrics: Metrics) -> set[str]:
    """Return the names on the metrics page."""
    return set(re.findall(r"^(ckptprof_\w+)", generate_latest(metrics).decode(), re.MULTILINE))


def variable(document: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the one template variable of this name."""
    found = [each for each in document["templating"]["list"] if each["name"] == name]
    assert len(found) == 1, f"{name}: {found}"
    each: dict[str, Any] = found[0]
    return each


@pytest.fixture(params=DASHBOARDS, ids=lambda path: path.name)
def board(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return each committed dashboard in turn."""
    return load(request.param)


def test_the_dashboards_are_there() -> None:
    """They are committed under the uids that links rely on."""
    assert [load(path)["uid"] for path in DASHBOARDS] == [path.stem for path in (FLEET, JOB, NODE)]


@pytest.mark.skipif(
    importlib.util.find_spec("grafana_foundation_sdk") is None, reason="not installed: the group dashboards"
)
@pytest.mark.slow
def test_what_is_committed_is_what_is_generated() -> None:
    """`generate.py --check` finds no difference; `generate.py` writes it anew."""
    done = subprocess.run([sys.executable, str(FOLDER / "generate.py"), "--check"], check=False)
    assert done.returncode == 0


def test_grafana_has_each_field(board: dict[str, Any]) -> None:
    """By the types of Grafana itself (grafana_schema.py), closed: a slip of the pen would be found."""
    for mark in board["annotations"]["list"]:
        for name in ("expr", "tagKeys", "textFormat", "titleFormat", "useValueForTime"):  # of Prometheus' data source
            del mark[name]
    known = Draft7Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
    assert [f"{error.json_path}: {error.message}" for error in known.iter_errors(board)] == []

    stat, graph = panels(board)[0], next(panel for panel in panels(board) if panel["type"] == "timeseries")
    stat["options"]["graphMod"] = "none"
    graph["fieldConfig"]["defaults"]["custom"]["drawStyle"] = "lines"
    board["variables"] = []
    assert len({error.json_path for error in known.iter_errors(board)}) == 3


def test_template_datasource(board: dict[str, Any]) -> None:
    """Rule 1: one labelled data source variable of type prometheus, and no `__inputs` that only an import knows."""
    source = variable(board, "DS_PROMETHEUS")
    assert (source["type"], source["query"], source["label"]) == ("datasource", "prometheus", "Data source")
    assert "__inputs" not in board


def test_template_variables(board: dict[str, Any]) -> None:
    """Rules 2 and 3: multi-valued queries of that data source; `.*` also matches a scrape without the label."""
    found = queried(board)
    names = {"fleet": ["job"], "node": ["job", "instance"], "job": ["job", "run", "instance"]}
    assert list(found) == ["cluster", *names[board["uid"].removeprefix("ckptprof-")]]
    for name, one in found.items():
        is_of_run = name == "instance" and "run" in found  # all of them are the nodes of the run, and no others
        assert one.get("allValue") == (".*" if name == "cluster" else None if is_of_run else ".+")
        assert (one["label"], one["multi"], one["includeAll"]) == (name.capitalize(), True, True)
        assert (one.get("hide", 0) == HIDDEN) == (name == "cluster")
        assert one["datasource"] == {"type": "prometheus", "uid": "${DS_PROMETHEUS}"}


def test_template_label_promql(board: dict[str, Any]) -> None:
    """Rule 4: each is a `label_values` of a metric that has it, of what the variables before it choose."""
    before: list[str] = []
    for name, one in queried(board).items():
        match = re.fullmatch(r"label_values\((\w+)(?:\{([^}]*)\})?, (\w+)\)", one["query"])
        assert match is not None
        of_run = board["uid"] == "ckptprof-job" and name in ("run", "instance")
        assert match[1] == ("ckptprof_run_info" if of_run else "ckptprof_build_info")
        assert (match[2] or "") == ",".join(f'{one}=~"${one}"' for one in before)
        assert match[3] == name
        before.append(name)


def test_a_link_keeps_every_variable(board: dict[str, Any]) -> None:
    """A click on a node or a run leads to the board of it, with what was chosen on this one and its time."""
    leads = {"node": ("ckptprof-node", "instance"), "run": ("ckptprof-job", "run")}
    tables = [panel for panel in panels(board) if panel["type"] == "table"]
    assert tables
    for panel in tables:
        overrides = {each["matcher"]["options"]: each["properties"] for each in panel["fieldConfig"]["overrides"]}
        for column, (uid, variable) in leads.items():
            (link,) = (one["value"][0]["url"] for one in overrides[column] if one["id"] == "links")
            kept = {"DS_PROMETHEUS", *queried(board)} - {variable}
            assert set(re.findall(r"\$\{(\w+):queryparam\}", link)) == kept
            assert link.startswith(f"/d/{uid}?var-{variable}=${{__value.raw}}&")
            assert link.endswith("&${__url_time_range}")


def test_what_an_alert_of_severity_warning_is_about_is_yellow() -> None:
    """As an age above two intervals; the share of blocked training has an alert of severity info, and no colour."""
    for path in (FLEET, JOB):
        shown = titled("Age of the newest save, in intervals", path)["fieldConfig"]["defaults"]
        assert shown["thresholds"]["steps"][-1] == {"color": YELLOW, "value": 2.0}
        assert shown["custom"]["thresholdsStyle"] == {"mode": "dashed+area"}
    for title in ("Runs, by their most blocked node", "Nodes, the most blocked first", "Training blocked by storage"):
        assert titled(title, FLEET)["fieldConfig"]["defaults"]["color"]["mode"] == "fixed"


def test_a_figure_without_thresholds_has_no_colour() -> None:
    """A stat is green or red only by steps of its own: silent nodes, and ages in intervals, have them."""
    for title, watch in (("Nodes", 1.0), ("Longest unsaved", 2.0)):
        shown = titled(title, FLEET)["fieldConfig"]
        (override,) = ({one["id"]: one["value"] for one in each["properties"]} for each in shown["overrides"])
        assert (shown["defaults"]["color"]["mode"], override["color"]["mode"]) == ("fixed", "thresholds")
        assert override["thresholds"]["steps"][1]["value"] == watch


def test_panel_datasource(board: dict[str, Any]) -> None:
    """Rule 5: every panel reads from the variable's data source."""
    assert {panel["datasource"]["uid"] for panel in panels(board)} == {"${DS_PROMETHEUS}"}


def test_panel_title_and_description(board: dict[str, Any]) -> None:
    """Rule 6: every panel says what it shows, in a title of its own and a sentence."""
    titles = [panel["title"] for panel in panels(board)]
    assert all(titles)
    assert len(titles) == len(set(titles))
    assert all(panel["description"].endswith(".") for panel in panels(board))


def test_panel_units(board: dict[str, Any]) -> None:
    """Rule 7: every panel has a unit, and a plain number only where it tells words or the title says of what."""
    units = {panel["title"]: panel["fieldConfig"]["defaults"]["unit"] for panel in panels(board)}
    assert {unit for unit in units.values() if not unit.startswith("suffix:")} <= {
        "short", "s", "decbytes", "Bps", "percentunit"
    }  # fmt: skip
    plain = {title for title, unit in units.items() if unit == "short"}
    words = {"Nodes, the longest without a save first", "Limit of the newest checkpoint", "Jobs", "Step to restore",
             "Runs, the longest without a step to restore first", "Alerts that fire"}  # fmt: skip
    counted = r"(Nodes.*|.*(Alerts|Saves|Restores|Incomplete saves|Requests|GPUs|Collectors|processes)\b.*|By \w+)"
    assert {title for title in plain - words if not re.fullmatch(counted, title)} == set()


def test_target_rate_interval(board: dict[str, Any]) -> None:
    """Rule 9: every rate is over `$__rate_interval`, whatever the scrape interval is; a sum is over what is shown."""
    ranges = [found for expression in targets(board) for found in re.findall(r"\[([^\]]*)\]", expression)]
    assert set(ranges) == {"$__rate_interval", "$__range", "1h"}
    hourly = [one for one in targets(board) if "[1h]" in one]  # they move at the end of a save only
    assert all("stall_seconds" in one or "gpu_seconds" in one for one in hourly)
    assert hourly
    assert not [one for one in targets(board) if "rate(" in one and "[$__range]" in one]


def test_target_variables(board: dict[str, Any]) -> None:
    """Rules 10 and 11: every selector is bound to what is chosen, as far as its series have those labels."""
    for told in targets(board):
        unquoted = re.sub(r'"[^"]*"', "", told)
        assert unquoted.count("ckptprof_") == len(re.findall(r"\bckptprof_\w+\{", unquoted)) + len(
            re.findall(rf"{RECORDED.pattern}\{{", unquoted)
        )
        for name, selector in re.findall(r"([\w:]*)\{([^}]*)\}", told):
            lacking = "instance" if RECORDED.fullmatch(name) else "" if name.startswith("ckptprof_run_") else "run"
            for variable in set(queried(board)) - {lacking}:
                assert f'{variable}=~"${variable}"' in selector, told


def test_every_metric_exists(board: dict[str, Any]) -> None:
    """Rule 8 without Prometheus: what the expressions name is what the agent exports."""
    metrics = Metrics(job_names=True)
    busy_node.describe(metrics)
    busy_node.advance(metrics, 1, 1_700_000_000_000_000_000)
    exported = exported_by(metrics)
    marks = [mark["expr"] for mark in board["annotations"]["list"]]
    rules = (FOLDER / "rules/ckptprof.rules.yml").read_text(encoding="utf-8")
    asked = " ".join([*targets(board), *marks])
    assert set(RECORDED.findall(asked)) <= set(re.findall(r"- record: (\S+)", rules))
    named = set(re.findall(r"\bckptprof_\w+", RECORDED.sub("", asked)))
    assert {name for name in named if name != "ckptprof_"} <= exported


def test_identity_and_layout(board: dict[str, Any]) -> None:
    """Ids are unique and given, the document itself has none, and no two panels overlap."""
    assert board.get("id") is None
    every = [inner for panel in board["panels"] for inner in (panel, *panel.get("panels", ()))]
    assert len({panel["id"] for panel in every}) == len(every)
    assert_apart(board["panels"])
    for row in board["panels"]:
        assert_apart(row.get("panels", ()))


def assert_apart(shown: Iterable[dict[str, Any]]) -> None:
    """Hold panels that are seen together to cells of their own in the grid."""
    cells: list[tuple[int, int]] = []
    for panel in shown:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells += itertools.product(
            range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        )
    assert len(cells) == len(set(cells))


def test_no_counter_is_drawn_raw(board: dict[str, Any]) -> None:
    """A counter falls to zero when its agent starts anew: only what it grew by is shown."""
    for expression in targets(board):
        for found in re.finditer(r"ckptprof_\w+_(?:total|count|sum|bucket)\{[^}]*\}", expression):
            before, after = expression[: found.start()], expression[found.end() :]
            assert before.endswith(("rate(", "increase(", "min_over_time(")) or after.startswith(" offset "), expression


def test_a_dead_node_does_not_hide_behind_a_living_one(board: dict[str, Any]) -> None:
    """Ages are taken of each node before the largest is chosen; what a silent one saves is not known."""
    ages = [one for one in targets(board) if "time() -" in one and not RECORDED.search(one)]
    assert ages
    assert all("max by (instance) (time() - last_over_time(" in one for one in ages)
    table = titled("Nodes, the longest without a save first", FLEET)
    assert table["options"]["sortBy"] == [{"desc": True, "displayName": "since the newest save"}]
    known = {one["legendFormat"]: " and on (instance) ckptprof_build_info{" in one["expr"] for one in table["targets"]}
    assert (known["since the newest save"], known["training blocked"], known["level"]) == (True, True, False)
    assert "on nodes" in titled("Saves on nodes")["title"]
    assert "8 times" in titled("Saves on nodes")["description"]


def test_an_overdue_node_is_yellow() -> None:
    """The table tells the age of a node's newest save in its own intervals: 2 is overdue."""
    overrides = {
        each["matcher"]["options"]: {one["id"]: one["value"] for one in each["properties"]}
        for each in titled("Nodes, the longest without a save first", FLEET)["fieldConfig"]["overrides"]
    }
    assert overrides["intervals"]["thresholds"]["steps"][-1] == {"color": YELLOW, "value": 2.0}


def test_every_limit_has_a_colour_of_its_own() -> None:
    """A state is a number; each is told as the word of its limit, in a colour that stands out from both grounds."""
    panel = titled("Limit of the newest checkpoint")
    assert panel["type"] == "state-timeline"
    told = panel["fieldConfig"]["defaults"]["mappings"][0]["options"]
    colours = {each["text"]: each["color"] for each in told.values()}
    numbers = dict(re.findall(r'limit="([\w-]+)"\} \* (\d+)', panel["targets"][0]["expr"]))
    assert set(numbers) == {limit.value for limit in Limit}
    assert set(colours) == {account_name(limit) for limit in (*Limit, None)}
    assert all(told[number]["text"] == account_name(Limit(limit)) for limit, number in numbers.items())
    assert len(set(colours.values())) == len(colours)
    assert all(contrast(colour, ground) >= 3 for colour in colours.values() for ground in GROUNDS), colours
    bars = titled("What limited checkpoints")["fieldConfig"]["overrides"]
    assert {each["properties"][1]["value"]: each["properties"][0]["value"]["fixedColor"] for each in bars} == colours


def contrast(first: str, second: str) -> float:
    """Return the contrast of two colours (WCAG 2)."""
    dark, light = sorted(luminance(colour) for colour in (first, second))
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    """Return how bright a colour is, 0 to 1."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize(
    "title", ["Saves on nodes", "Restores on nodes", "Incomplete saves", "Saved in the time range"]
)
def test_nothing_saved_is_a_zero(title: str) -> None:
    """What these count has a series from the start of the agent, at zero: no data then means that no agent answers."""
    (expression,) = (target["expr"] for target in titled(title)["targets"])
    name, labels = re.findall(r"(ckptprof_\w+)\{([^}]*)\}", expression)[0]
    kind = re.search(r'kind="(\w+)"', labels)
    assert kind is not None
    assert f'{name}{{kind="{kind[1]}"}} 0.0' in generate_latest(Metrics()).decode()


def test_a_panel_that_a_level_cannot_fill_says_so() -> None:
    """Beside a service that polls, without GPUs and job names: what names only what it never exports says why."""
    metrics = Metrics()
    metrics.level("poll")
    busy_node.advance(metrics, 1, 1_700_000_000_000_000_000, service_at_poll=True)
    seen = exported_by(metrics)

    mute = [
        panel
        for panel in panels(load(NODE))
        if not any(set(re.findall(r"\bckptprof_\w+", target["expr"])) & seen for target in panel["targets"])
        and "__name__" not in panel["targets"][0]["expr"]
    ]

    assert {panel["title"] for panel in mute} == {
        "At risk after the commit",
        "GPUs that waited in the last hour",
        "Counted without their file",
        "Jobs",
    }
    assert all(panel["fieldConfig"]["defaults"]["noValue"] != DEFAULT_EMPTY for panel in mute)
    assert "at level poll this panel stays empty" in titled("At risk after the commit")["description"]
    assert "`job_names` in config.toml" in titled("Jobs")["description"]
