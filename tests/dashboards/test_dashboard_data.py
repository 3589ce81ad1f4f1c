"""Rules and dashboards against a real Prometheus."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from prometheus_client import generate_latest
from tests.dashboards import busy_node, prometheus_harness
from tests.patience import wait_until

from ckptprof.assets import asset
from ckptprof.cli.main import main
from ckptprof.export.http import MetricsServer
from ckptprof.export.metrics import Metrics
from ckptprof.export.wsgi_pages import Pages
from ckptprof_collectors import counters
from ckptprof_collectors.samples import MemorySample

TESTED = Path(__file__).with_name("ckptprof.rules.test.yml")  # not beside them: `rule_files: rules/*.yml` would take it
RULES = asset("dashboards/rules")
DOCS = Path(__file__).resolve().parents[2] / "docs"


def documented_series(*, job_names: bool = False) -> int:
    """Return how many series docs/metrics.md promises at most."""
    text = (DOCS / "metrics.md").read_text(encoding="utf-8")
    usual, named = re.findall(r"at most (\d+) series .* and (\d+) more if it names jobs", text)[0]
    return int(usual) + (int(named) if job_names else 0)


def number_of_series() -> int:
    """Return how many a busy node has after some checkpoints."""
    metrics = Metrics()
    busy_node.describe(metrics)
    for tick in range(1, 42):
        busy_node.advance(metrics, tick, time.time_ns())
    return sum(bool(line) and not line.startswith("#") for line in generate_latest(metrics).decode().splitlines())


@pytest.fixture
def busy_server() -> Iterator[MetricsServer]:
    """Return a real metrics endpoint of a node that goes on working, and names its jobs."""
    metrics = Metrics(job_names=True)
    busy_node.describe(metrics)
    stop = threading.Event()

    def work() -> None:
        tick = 0
        while not stop.wait(0.1):
            tick += 1
            busy_node.advance(metrics, tick, time.time_ns())

    server = MetricsServer(Pages(metrics, in_clear=True), port=0)
    server.start()
    worker = threading.Thread(target=work)
    worker.start()
    yield server
    stop.set()
    worker.join()
    server.close()


@pytest.mark.prometheus
@pytest.mark.slow
def test_every_expression_returns_data(busy_server: MetricsServer, tmp_path: Path) -> None:
    """Each query of each panel gives at least one number, and a wrong one would be found out."""
    with prometheus_harness.scraping(busy_server.url, tmp_path) as prometheus:
        prometheus.wait_for_scrapes(8)
        for dashboard in asset("dashboards").glob("*.json"):
            missing = functools.partial(prometheus_harness.empty_expressions, prometheus, dashboard)
            wait_until(lambda missing=missing: not missing(), missing)  # a scrape may have come too late for an answer
        with pytest.raises(AssertionError, match="parse error"):
            prometheus.query("rate(ckptprof_[")
        assert prometheus.query("ckptprof_no_such_metric") == []
        for variable in ("job", "instance"):
            values = prometheus.get(f"label/{variable}/values", **{"match[]": "ckptprof_build_info"})
            assert values == [{"job": prometheus_harness.JOB, "instance": prometheus.instance}[variable]]
        samples = wait_until(lambda: prometheus.query("scrape_samples_scraped > 0"))[0]["value"][1]
        assert int(samples) <= documented_series(job_names=True)


def test_a_busy_node_has_no_more_series_than_documented() -> None:
    """What Prometheus counts at each scrape is counted without it, too."""
    assert 0 < number_of_series() <= documented_series()


def test_the_example_of_a_new_metric_keeps_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who follows docs/tasks/new-metric.md to the letter adds one series, and breaks no test."""
    example = re.findall(r"(?s)```python\n(.*?),?\n```", (DOCS / "tasks/new-metric.md").read_text(encoding="utf-8"))
    column = eval(example[0], vars(counters))  # noqa: S307 - a line of our own page
    others = [one for one in MemorySample.counted.columns if one.field != column.field]
    found = []
    for columns in (others, [*others, column]):
        declared = dataclasses.replace(MemorySample.counted, columns=tuple(columns))
        monkeypatch.setattr(MemorySample, "counted", declared)
        found.append(number_of_series())

    assert found[1] == found[0] + 1 <= documented_series()


@pytest.mark.prometheus
def test_the_slow_node_of_a_run_is_the_first_of_them(tmp_path: Path) -> None:
    """Held against the median node of its own run; a run on one node has nobody to be slower than."""
    document = json.loads((RULES.parent / "ckptprof-job.json").read_text(encoding="utf-8"))
    (panel,) = (one for one in document["panels"] if one["title"] == "Slow nodes")
    expression = panel["targets"][0]["expr"].replace("$__range", "2h")
    expression = re.sub(r'\w+=~"\$\w+",?', "", expression)
    series = []
    for node, run, seconds in (("a", "r", 10), ("b", "r", 11), ("c", "r", 40), ("d", "r", 12), ("e", "alone", 90)):
        of_node = f'job="ckptprof",instance="{node}"'
        for name, labels, step in (
            ("ckptprof_checkpoint_duration_seconds_sum", f'{of_node},kind="save"', seconds),
            ("ckptprof_checkpoint_duration_seconds_count", f'{of_node},kind="save"', 1),
            ("ckptprof_run_saves_total", f'{of_node},run="{run}"', 1),
        ):
            series.append({"series": f"{name}{{{labels}}}", "values": f"0+{step}x130"})
    told = [
        ("c", "r", 40 / 11.5),
        ("d", "r", 12 / 11.5),
        ("e", "alone", 1.0),
        ("b", "r", 11 / 11.5),
        ("a", "r", 10 / 11.5),
    ]
    samples = [{"labels": f'{{instance="{node}",run="{run}"}}', "value": value} for node, run, value in told]
    asked = {"expr": expression, "eval_time": "2h", "exp_samples": samples}
    test = {"evaluation_interval": "1m", "tests": [{"interval": "1m", "input_series": series,
                                                    "promql_expr_test": [asked]}]}  # fmt: skip
    (tmp_path / "slow.yml").write_text(json.dumps(test))  # JSON is YAML
    done = subprocess.run(
        ["promtool", "test", "rules", tmp_path / "slow.yml"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.prometheus
def test_rules_pass_promtool() -> None:
    """Every lint of promtool passes, and the rules do on made-up series what they say."""
    for command in (
        ["check", "rules", "--lint=all", "--lint-fatal", RULES / "ckptprof.rules.yml"],
        ["test", "rules", TESTED],
    ):
        done = subprocess.run(["promtool", *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested_and_says_what_to_do() -> None:
    """No alert without a test, a severity, a summary, a description and a section of its own in the runbooks."""
    rules = (RULES / "ckptprof.rules.yml").read_text(encoding="utf-8")
    tested = TESTED.read_text(encoding="utf-8")
    alerts = re.findall(r"alert: (\w+)", rules)
    assert alerts
    assert all(f"alertname: {alert}" in tested for alert in alerts)
    for word in ("severity:", "summary:", "description:"):
        assert rules.count(word) == len(alerts)
    runbooks = (DOCS / "runbooks.md").read_text(encoding="utf-8")
    assert re.findall(r"(?m)^## (\w+)$", runbooks) == alerts
    assert re.findall(r"runbook_url: (\S+)", rules) == [f"docs/runbooks.md#{alert.lower()}" for alert in alerts]
    for section in runbooks.split("\n## ")[1:]:
        assert all(word in section for word in ("**Means:**", "**Costs:**", "\n1. ", "\n2. ")), section


@pytest.mark.prometheus
def test_the_address_of_the_runbooks_is_given_at_generation(tmp_path: Path) -> None:
    """An Alertmanager's reader opens the section of the alert; what is no address is refused."""
    address = "https://wiki.example.org/ckptprof/runbooks"
    assert main(["dashboards", "-o", str(tmp_path), "--runbooks", address]) == 0
    written = tmp_path / "ckptprof.rules.yml"
    text = written.read_text(encoding="utf-8")
    alerts = re.findall(r"alert: (\w+)", text)
    checked = subprocess.run(["promtool", "check", "rules", written], capture_output=True, text=True, check=False)

    assert re.findall(r"runbook_url: (\S+)", text) == [f"{address}#{alert.lower()}" for alert in alerts]
    assert checked.returncode == 0, checked.stdout + checked.stderr
    for wrong in ("docs/", "https://x y", "https://x#y"):
        assert main(["dashboards", "-o", str(tmp_path), "--force", "--runbooks", wrong]) == 2
    assert written.read_text(encoding="utf-8") == text


def test_a_folder_gets_what_grafana_and_prometheus_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The committed boards and rules; the provider reads the boards; nothing is written over unless it is wanted."""
    folder = tmp_path / 'a "folder"'
    assert main(["dashboards", "-o", str(folder / "new" / "one")]) == 0
    assert main(["dashboards", "-o", "/proc/none"]) == 1
    monkeypatch.chdir(folder)
    assert main(["dashboards"]) == 0

    provider = yaml.safe_load((folder / "grafana-provider.yml").read_text(encoding="utf-8"))["providers"][0]
    assert provider["options"]["path"] == str(folder / "provisioned")
    committed = {path.name: path.read_bytes() for path in RULES.parent.glob("*.json")}
    assert {path.name: path.read_bytes() for path in (folder / "provisioned").iterdir()} == committed
    assert (folder / "ckptprof.rules.yml").read_bytes() == (RULES / "ckptprof.rules.yml").read_bytes()
    assert main(["dashboards"]) == 2
    assert main(["dashboards", "--force"]) == 0


def test_an_import_asks_for_the_source(tmp_path: Path) -> None:
    """The answer is what the variable has at first; nothing else differs, and what is required is what is used."""
    assert main(["dashboards", "-o", str(tmp_path)]) == 0
    for path in (tmp_path / "import").iterdir():
        text = path.read_text(encoding="utf-8")
        (asked,) = json.loads(text)["__inputs"]
        assert (asked["type"], asked["pluginId"]) == ("datasource", "prometheus")
        answered = json.loads(text.replace(f"${{{asked['name']}}}", "uid-of-mine"))
        (variable,) = (one for one in answered["templating"]["list"] if one["type"] == "datasource")
        assert variable.pop("current")["value"] == "uid-of-mine"
        required = {one["id"] for one in answered.pop("__requires") if one["type"] == "panel"}
        committed = json.loads((RULES.parent / path.name).read_text(encoding="utf-8"))
        every = [inner for one in committed["panels"] for inner in (one, *one.get("panels", ()))]
        assert required == {one["type"] for one in every} - {"row"}
        del answered["__inputs"]
        (before,) = (one for one in committed["templating"]["list"] if one["type"] == "datasource")
        before.pop("current", None)
        assert answered == committed


def test_rules_name_only_what_is_exported() -> None:
    """An alert on a metric that does not exist would never fire."""
    metrics = Metrics(job_names=True)
    busy_node.describe(metrics)
    busy_node.advance(metrics, 1, 1)
    exported = set(re.findall(r"^(ckptprof_\w+)", generate_latest(metrics).decode(), re.MULTILINE))
    rules = (RULES / "ckptprof.rules.yml").read_text(encoding="utf-8")
    expressions = re.sub(r"(?m)^\s*(#|summary:|description:|runbook_url:|- record:|- name:).*$", "", rules)
    named = set(re.findall(r"(?<![:\w])ckptprof_\w+", expressions))
    assert named <= exported
    assert len(named) >= 8
