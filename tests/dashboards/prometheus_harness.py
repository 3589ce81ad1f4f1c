"""A real Prometheus on a free loopback port that scrapes one target, and the dashboard's queries put to it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import psutil
from tests.patience import PATIENCE_SECONDS, wait_until

from ckptprof.assets import asset

JOB = "ckptprof"


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus and the target that it scrapes."""

    url: str
    instance: str  # the target's host:port, as Prometheus labels it

    def get(self, path: str, **arguments: str) -> Any:
        """Ask the HTTP API and return `data`; an error of PromQL raises AssertionError with its text."""
        query = urllib.parse.urlencode(arguments)
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=PATIENCE_SECONDS) as response:  # noqa: S310 - loopback
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            if error.code == HTTPStatus.SERVICE_UNAVAILABLE:  # it starts
                raise
            raise AssertionError(f"{arguments}: {error.read().decode()}") from error

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series that an instant query gives now."""
        result: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return result

    def resolve(self, expression: str, rate_interval: str = "1m", range_seconds: int = 600) -> str:
        """Put values where Grafana puts them; it escapes what a regular expression would read as its own, twice."""
        instance = self.instance.replace(".", r"\\.").replace("[", r"\\[").replace("]", r"\\]")
        values = {"$__rate_interval": rate_interval, "$__range_s": str(range_seconds), "$__range": f"{range_seconds}s"}
        for name, value in (values | {"$cluster": ".*", "$job": JOB, "$instance": instance, "$run": ".+"}).items():
            expression = expression.replace(name, value)
        assert "$" not in expression, f"an unknown variable in {expression}"
        return expression

    def wait_for_scrapes(self, count: int) -> None:
        """Wait until the target was scraped so often; raises AssertionError with Prometheus' own reason if not."""

        def scraped() -> bool:
            with contextlib.suppress(OSError):
                result = self.query(f'count_over_time(up{{job="{JOB}"}}[1h]) and up == 1')
                return bool(result) and float(result[0]["value"][1]) >= count
            return False

        wait_until(scraped, lambda: f"not scraped: {self.get('targets')}")


def expressions(dashboard: Path) -> list[tuple[str, str]]:
    """Return panel title and expression of every target of a dashboard, and those of its marks."""
    document = json.loads(dashboard.read_text(encoding="utf-8"))
    panels = [inner for panel in document["panels"] for inner in (panel, *panel.get("panels", ()))]
    asked = [(panel["title"], target["expr"]) for panel in panels for target in panel.get("targets", ())]
    return asked + [(mark["name"], mark["expr"]) for mark in document["annotations"]["list"]]


def empty_expressions(prometheus: Prometheus, dashboard: Path) -> list[str]:
    """Return what gives no number, with its panel; an expression that Prometheus refuses raises."""
    empty = []
    for title, expression in expressions(dashboard):
        series = prometheus.query(prometheus.resolve(expression))
        if not any(one["value"][1] != "NaN" for one in series):
            empty.append(f"{title}: {expression}")
    return empty


@contextlib.contextmanager
def scraping(
    target_url: str, directory: Path, *, interval: str = "500ms", access: dict[str, Any] | None = None
) -> Iterator[Prometheus]:
    """Run Prometheus in `directory` against a /metrics URL until the block ends.

    `access` has what its scrape configuration says of TLS and passwords.
    """
    parts = urllib.parse.urlsplit(target_url)
    config = {
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
        "rule_files": [str(asset("dashboards/rules") / "*.yml")],
        "scrape_configs": [
            {
                "job_name": JOB,
                "scheme": parts.scheme,
                "metrics_path": parts.path,
                "sample_limit": 2000,
                "static_configs": [{"targets": [parts.netloc]}],
                **(access or {}),
            }
        ],
    }
    file = directory / "prometheus.yml"
    file.write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
    command = ["prometheus", f"--config.file={file}", f"--storage.tsdb.path={directory / 'tsdb'}"]
    command += ["--web.listen-address=127.0.0.1:0", "--log.level=error"]
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield Prometheus(f"http://127.0.0.1:{wait_until(lambda: _port_of(process))}", parts.netloc)
        finally:
            process.terminate()
            process.wait(PATIENCE_SECONDS)


def _port_of(process: subprocess.Popen[bytes]) -> int | None:
    """Return where it listens, once it does."""
    assert process.poll() is None, "it has ended"
    for one in psutil.Process(process.pid).net_connections(kind="tcp"):
        if one.status == psutil.CONN_LISTEN:
            return int(one.laddr.port)
    return None
