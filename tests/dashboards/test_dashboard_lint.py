"""The committed dashboards: as generated, and clean by the rules of grafana/dashboard-linter."""

from __future__ import annotations

import importlib.util
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.dashboards import busy_node

from ckptprof.assets import asset
from ckptprof.export.metrics import Metrics

FOLDER = asset("dashboards")
DASHBOARDS = sorted(FOLDER.glob("*.json"))


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


def test_the_node_dashboard_is_there() -> None:
    """It is committed under the uid that links may rely on."""
    assert load(FOLDER / "ckptprof-node.json")["uid"] == "ckptprof-node"


@pytest.mark.skipif(
    importlib.util.find_spec("grafana_foundation_sdk") is None, reason="not installed: the group dashboards"
)
@pytest.mark.slow
def test_what_is_committed_is_what_is_generated() -> None:
    """`generate.py --check` finds no difference; `generate.py` writes it anew."""
    done = subprocess.run([sys.executable, str(FOLDER / "generate.py"), "--check"], check=False)
    assert done.returncode == 0


def test_template_datasource(board: dict[str, Any]) -> None:
    """Rule 1: one labelled data source variable of type prometheus, and no `__inputs` that only an import knows."""
    source = variable(board, "DS_PROMETHEUS")
    assert (source["type"], source["query"], source["label"]) == ("datasource", "prometheus", "Data source")
    assert "__inputs" not in board


@pytest.mark.parametrize("name", ["job", "instance"])
def test_template_job_and_instance(board: dict[str, Any], name: str) -> None:
    """Rules 2 and 3: `job` and `instance` are multi-valued queries of that data source, all of them is `.+`."""
    found = variable(board, name)
    assert (found["type"], found["label"], found["multi"], found["allValue"]) == (
        "query",
        name.capitalize(),
        True,
        ".+",
    )
    assert found["datasource"] == {"type": "prometheus", "uid": "${DS_PROMETHEUS}"}


def test_template_label_promql(board: dict[str, Any]) -> None:
    """Rule 4: each query variable is a `label_values` of a metric that exists."""
    for found in board["templating"]["list"]:
        if found["type"] == "query":
            match = re.fullmatch(r"label_values\((\w+)(?:\{[^}]*\})?, (\w+)\)", found["query"])
            assert match is not None
            assert match[1] == "ckptprof_build_info"
            assert match[2] == found["name"]


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
    """Rule 7: every panel has a unit."""
    known = {"short", "s", "bytes", "Bps", "percentunit"}
    assert all(panel["fieldConfig"]["defaults"]["unit"] in known for panel in panels(board))


def test_target_rate_interval(board: dict[str, Any]) -> None:
    """Rule 9: every rate is over `$__rate_interval`, whatever the scrape interval is."""
    ranges = [found for expression in targets(board) for found in re.findall(r"\[([^\]]*)\]", expression)]
    assert ranges
    assert set(ranges) == {"$__rate_interval"}


def test_target_job_and_instance(board: dict[str, Any]) -> None:
    """Rules 10 and 11: every selector is bound to the chosen jobs and instances."""
    for expression in targets(board):
        selectors = re.findall(r"\{([^}]*)\}", expression)
        unquoted = re.sub(r'"[^"]*"', "", expression)
        assert selectors
        assert unquoted.count("ckptprof_") == len(re.findall(r"\bckptprof_\w+\{", unquoted))
        assert all('job=~"$job"' in selector for selector in selectors)
        assert all('instance=~"$instance"' in selector for selector in selectors)


def test_every_metric_exists(board: dict[str, Any]) -> None:
    """Rule 8 without Prometheus: what the expressions name is what the agent exports."""
    metrics = Metrics()
    busy_node.describe(metrics)
    busy_node.advance(metrics, 1, 1_700_000_000_000_000_000)
    exported = set(re.findall(r"^(ckptprof_\w+)", metrics.render()[0].decode(), re.MULTILINE))
    named = set(re.findall(r"\bckptprof_\w+", " ".join(targets(board))))
    assert {name for name in named if name != "ckptprof_"} <= exported


def test_identity_and_layout(board: dict[str, Any]) -> None:
    """Ids are unique and given, the document itself has none, and no two panels overlap."""
    assert board.get("id") is None
    every = board["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    cells: list[tuple[int, int]] = []
    for panel in every:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells += itertools.product(
            range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        )
    assert len(cells) == len(set(cells))
