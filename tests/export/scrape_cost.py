"""What a scrape costs: our server in both of its formats and node_exporter, in turns of one run.

    python -m tests.export.scrape_cost

CPU is user and system time of the serving process (/proc/PID/stat, in ticks of 10 ms); each contender has its own.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

SCRAPES = 100
ROUNDS = 5
ROOT = Path(__file__).resolve().parents[2]

OURS = """
import itertools, signal, sys
from ckptprof.export.http import MetricsServer
from ckptprof.export import http, pages
from ckptprof.export.metrics import Metrics
from tests.dashboards import busy_node
pages.FRESH_SECONDS = 0.0  # each scrape renders
http.MAX_PER_SECOND = 1000
metrics = Metrics()
busy_node.describe(metrics)
ticks = itertools.count(1)
served = pages.Pages(metrics, in_clear=True)
def app(environ, start_response):
    busy_node.advance(metrics, tick := next(ticks), tick)  # so that every scrape has another page
    return served(environ, start_response)
server = MetricsServer(app, port=int(sys.argv[1]))
server.start()
signal.pause()
"""

# What Prometheus 2 asks for, and what a script does.
ACCEPTED = {
    "openmetrics": "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    "text": "text/plain;version=0.0.4",
}


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@contextlib.contextmanager
def _serving(command: list[str], port: int) -> Iterator[tuple[int, str]]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
    url = f"http://127.0.0.1:{port}/metrics"
    try:
        for _ in range(200):
            try:
                _scrape(url)
                break
            except OSError:
                time.sleep(0.05)
        yield process.pid, url
    finally:
        process.kill()
        process.wait()


def _scrape(url: str, accepted: str = ACCEPTED["openmetrics"]) -> bytes:
    headers = {"Accept-Encoding": "gzip", "Accept": accepted}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - loopback, as Prometheus asks
    with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310 - loopback
        body: bytes = response.read()
        return body


def _cpu_seconds(pid: int) -> float:
    # Of threads that have ended as well: each connection has one.
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def measure(rounds: int = ROUNDS, scrapes: int = SCRAPES) -> dict[str, float]:
    """Return milliseconds of CPU per scrape of each contender, of its best round: a busy host only adds to it."""
    with contextlib.ExitStack() as stack:
        port = _free_port()
        ours = stack.enter_context(_serving([sys.executable, "-c", OURS, str(port)], port))
        port = _free_port()
        command = ["prometheus-node-exporter", f"--web.listen-address=127.0.0.1:{port}"]
        servers = {f"ckptprof ({form})": (*ours, accepted) for form, accepted in ACCEPTED.items()}
        servers["node_exporter"] = (*stack.enter_context(_serving(command, port)), ACCEPTED["openmetrics"])
        costs: dict[str, list[float]] = {name: [] for name in servers}
        for _ in range(rounds):
            for name, (pid, url, accepted) in servers.items():
                before = _cpu_seconds(pid)
                for _ in range(scrapes):
                    _scrape(url, accepted)
                costs[name].append((_cpu_seconds(pid) - before) / scrapes * 1e3)
    return {name: min(values) for name, values in costs.items()}


def main() -> None:
    """Print the costs and their ratios to node_exporter's."""
    costs = measure()
    for name, milliseconds in costs.items():
        ratio = milliseconds / costs["node_exporter"]
        sys.stdout.write(f"{name:22} {milliseconds:7.3f} ms of CPU per scrape {ratio:6.3f}x node_exporter\n")


if __name__ == "__main__":
    main()
