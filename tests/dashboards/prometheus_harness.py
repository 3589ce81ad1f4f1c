"""A real Prometheus on a free loopback port that scrapes one target, and the dashboard's queries put to it."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

JOB = "ckptprof"
START_SECONDS = 30


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus and the target that it scrapes."""

    url: str
    instance: str  # the target's host:port, as Prometheus labels it

    def get(self, path: str, **arguments: str) -> Any:
        """Ask the HTTP API and return `data`; an error of PromQL raises AssertionError with its text."""
        query = urllib.parse.urlencode(arguments)
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=10) as response:  # noqa: S310 - loopback
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            if error.code == HTTPStatus.SERVICE_UNAVAILABLE:  # it starts
                raise
            raise AssertionError(f"{arguments}: {error.read().decode()}") from error

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series that an instant query gives now."""
        result: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return result

    def resolve(self, expression: str, rate_interval: str = "5s", range_seconds: int = 600) -> str:
        """Put values where Grafana puts them; it escapes what a regular expression would read as its own, twice."""
        instance = self.instance.replace(".", r"\\.").replace("[", r"\\[").replace("]", r"\\]")
        values = {"$__rate_interval": rate_interval, "$__range_s": str(range_seconds), "$__range": f"{range_seconds}s"}
        for name, value in (values | {"$cluster": ".*", "$job": JOB, "$instance": instance}).items():
            expression = expression.replace(name, value)
        assert "$" not in expression, f"an unknown variable in {expression}"
        return expression

    def wait_for_scrapes(self, count: int, *, seconds: float = START_SECONDS) -> None:
        """Wait until the target was scraped so often; raises AssertionError with Prometheus' own reason if not."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                result = self.query(f'count_over_time(up{{job="{JOB}"}}[1h]) and up == 1')
                if result and float(result[0]["value"][1]) >= count:
                    return
            time.sleep(0.2)
        raise AssertionError(f"not scraped: {self.get('targets')}")


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
        "global": {"scrape_interval": interval, "scrape_timeout": interval},
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
    port = _free_port()
    command = ["prometheus", f"--config.file={file}", f"--storage.tsdb.path={directory / 'tsdb'}"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield Prometheus(f"http://127.0.0.1:{port}", parts.netloc)
        finally:
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
