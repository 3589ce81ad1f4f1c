"""The dashboard shows data of a real agent that watched a real job, scraped by a real Prometheus."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from recorder import Recorder, check_job, wait_until
from tests.dashboards import prometheus_harness

from ckptprof.assets import asset

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("live"),
    pytest.mark.root,
    pytest.mark.prometheus,
]


def metrics_url(log: Path) -> str:
    """Return the address that the agent says it serves."""
    found: re.Match[str] = wait_until(lambda: re.search(r"metrics on (http://\S+)", log.read_text()), log.read_text)
    return found[1]


def test_every_expression_has_data_from_a_real_agent(recorder: Recorder, tmp_path: Path) -> None:
    """Two saves and a restore later each query of each panel gives a number, and the counters count them."""
    job = recorder.example("train_numpy.py", "--size-mb", "60", "--interval", "0.5")
    with recorder.agent("--listen", "127.0.0.1:0", "--job-names"):
        url = metrics_url(recorder.work / "agent.log")
        with prometheus_harness.scraping(url, tmp_path) as prometheus:
            prometheus.wait_for_scrapes(2)
            for more in (("--saves", "2"), ("--saves", "1", "--resume")):
                check_job(recorder.alone(*job, *more))

            def counted() -> dict[str, float]:
                series = prometheus.query("sum by (kind) (ckptprof_checkpoints_total)")
                return {one["metric"]["kind"]: float(one["value"][1]) for one in series}

            wait_until(lambda: (now := counted()).get("save", 0) >= 3 and now.get("restore", 0) >= 1, counted)
            prometheus.wait_for_scrapes(8)

            for dashboard in asset("dashboards").glob("*.json"):
                empty = prometheus_harness.empty_expressions(prometheus, dashboard)
                # how long a save was at risk is known when writeback is through, half a minute later; what it would
                # have taken without its limit, if anything limited it; and the trace has losses to tell if there is one
                # while runs are those of a scheduler, and most of them of rules (tests/dashboards)
                known_later = ("at_risk", "expected_seconds", "trace_lost", "_run_")
                assert [one for one in empty if not any(name in one for name in known_later)] == []
