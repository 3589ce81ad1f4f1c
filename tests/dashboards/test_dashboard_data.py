"""Rules and dashboards against a real Prometheus."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.dashboards import busy_node, prometheus_harness

from ckptprof.assets import asset
from ckptprof.export.http import MetricsServer
from ckptprof.export.metrics import Metrics

RULES = asset("dashboards/rules")


@pytest.fixture
def busy_server() -> Iterator[MetricsServer]:
    """Return a real metrics endpoint of a node that goes on working."""
    metrics = Metrics()
    busy_node.describe(metrics)
    stop = threading.Event()

    def work() -> None:
        tick = 0
        while not stop.wait(0.1):
            tick += 1
            busy_node.advance(metrics, tick, time.time_ns())

    server = MetricsServer(metrics.render, port=0)
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
            assert prometheus_harness.empty_expressions(prometheus, dashboard) == []
        with pytest.raises(AssertionError, match="parse error"):
            prometheus.query("rate(ckptprof_[")
        assert prometheus.query("ckptprof_no_such_metric") == []
        for variable in ("job", "instance"):
            values = prometheus.get(f"label/{variable}/values", **{"match[]": "ckptprof_build_info"})
            assert values == [{"job": prometheus_harness.JOB, "instance": prometheus.instance}[variable]]
        samples = prometheus.query("scrape_samples_scraped")[0]["value"][1]
        assert int(samples) <= 370


@pytest.mark.prometheus
def test_rules_pass_promtool() -> None:
    """Every lint of promtool passes, and the rules do on made-up series what they say."""
    for command in (["check", "rules", "--lint=all", "--lint-fatal"], ["test", "rules"]):
        name = "ckptprof.rules.test.yml" if command[0] == "test" else "ckptprof.rules.yml"
        done = subprocess.run(["promtool", *command, name], cwd=RULES, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested_and_says_what_to_do() -> None:
    """No alert without a test, a severity, a summary and a description."""
    rules = (RULES / "ckptprof.rules.yml").read_text(encoding="utf-8")
    tested = (RULES / "ckptprof.rules.test.yml").read_text(encoding="utf-8")
    alerts = re.findall(r"alert: (\w+)", rules)
    assert alerts
    assert all(f"alertname: {alert}" in tested for alert in alerts)
    for word in ("severity:", "summary:", "description:"):
        assert rules.count(word) == len(alerts)


def test_rules_name_only_what_is_exported() -> None:
    """An alert on a metric that does not exist would never fire."""
    metrics = Metrics()
    busy_node.describe(metrics)
    busy_node.advance(metrics, 1, 1)
    exported = set(re.findall(r"^(ckptprof_\w+)", metrics.render()[0].decode(), re.MULTILINE))
    rules = (RULES / "ckptprof.rules.yml").read_text(encoding="utf-8")
    expressions = re.sub(r"(?m)^\s*(#|summary:|description:|- record:|- name:).*$", "", rules)
    named = set(re.findall(r"(?<![:\w])ckptprof_\w+", expressions))
    assert named <= exported
    assert len(named) >= 8
