"""How an agent fares over hours: memory, descriptors, WAL, lateness and losses each minute, and events found of all.

    python benchmarks/soak.py --hours 3 --out soak.csv

An agent watches real everyday work (as false_alarms.py) and a training job that saves and restores all the time. Each
row of the CSV is one look; the table has for each figure its first, last and largest value, and how much it grew per
hour: the slope of a straight line (least squares) through all looks after the first `--warm-up` minutes. A figure that
could not be read is empty. The agent's metrics are served on a free port of this machine. Needs 6 GB of disk.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import signal
import socket
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import psutil

from contenders import ROOT
from false_alarms import DISK, chosen
from figures import parser, show

sys.path.insert(0, str(ROOT / "tests" / "e2e"))
sys.path.insert(0, str(ROOT / "examples"))

from everyday.jobbeside import JobBeside, otherwise, summary
from everyday.rounds import Office
from everyday.store import make_store

ROLES = ("recorder", "sampler")
METRICS = (
    "sampler_ticks_total", "sampler_late_ticks_total", "sampler_lateness_seconds_total", "sampler_dropped_frames_total",
    "recorder_dropped_frames_total", "recorder_late_frames_total", "recorder_detection_faults_total",
    "recorder_detection_kept_bytes", "recorder_detection_forgotten_bytes_total",
    "sampler_restarts_total", "trace_lost_operations_total", "trace_lost_bytes_total", "trace_lost_sessions_total",
    "trace_lost_events_total",
)  # fmt: skip


def looked(agent: psutil.Process, database: Path, port: int, began: float) -> dict[str, float | None]:
    """Return one row: PSS, descriptors and CPU of both processes, sizes of the store, and what the metrics count."""
    row: dict[str, float | None] = {"seconds": round(time.monotonic() - began, 1)}
    samplers = [child for child in agent.children() if _is_sampler(child)]
    for role, process in zip(ROLES, (agent, samplers[-1] if samplers else None), strict=True):
        row |= {f"{role}_{name}": None for name in ("pss_bytes", "private_bytes", "descriptors", "cpu_seconds")}
        if process is None:
            continue
        with contextlib.suppress(psutil.Error):
            memory, times = process.memory_full_info(), process.cpu_times()
            row[f"{role}_pss_bytes"], row[f"{role}_private_bytes"] = memory.pss, memory.uss
            row[f"{role}_descriptors"] = process.num_fds()
            row[f"{role}_cpu_seconds"] = round(times.user + times.system, 2)
    for name, path in (("database_bytes", database), ("wal_bytes", Path(f"{database}-wal"))):
        row[name] = path.stat().st_size if path.exists() else None
    return row | scraped(port)


def scraped(port: int) -> dict[str, float | None]:
    """Return the counters of the metrics page; None of each that it has not."""
    row: dict[str, float | None] = dict.fromkeys(METRICS)
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
        for line in page.read().decode().splitlines():
            name, _, value = line.partition(" ")
            if (short := name.removeprefix("ckptprof_")) in row:
                row[short] = float(value)
    return row


def watch(look: Any, out: Path | None, every_seconds: float, over: threading.Event) -> list[dict[str, float | None]]:
    """Look until it is over; each row is written at once, so that a run that is cut short has left its rows."""
    rows: list[dict[str, float | None]] = []
    with (out or Path("/dev/null")).open("w", encoding="utf-8", newline="") as file:
        while True:
            try:
                rows.append(look())
            except psutil.Error:  # the agent has ended: Office says so
                return rows
            if len(rows) == 1:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
            writer.writerow(rows[-1])
            file.flush()
            if over.wait(every_seconds):
                return rows


def grown(rows: list[dict[str, float | None]], warm_up_seconds: float) -> list[dict[str, Any]]:
    """Return a line for each figure: first, last, largest, and its growth per hour after the warm-up."""
    table = []
    for name in rows[0]:
        seen = [(row["seconds"] or 0.0, value) for row in rows if (value := row[name]) is not None]
        later = [(at, value) for at, value in seen if at >= warm_up_seconds]
        slope = statistics.linear_regression(*zip(*later, strict=True)).slope * 3600 if len(later) > 1 else None
        if name == "seconds" or not seen:
            continue
        values, scale = [value for _, value in seen], 1e-6 if name.endswith("_bytes") else 1.0
        table.append(
            {
                "figure": name.removesuffix("_bytes") + (" (MB)" if scale != 1.0 else ""),
                "first": values[0] * scale,
                "last": values[-1] * scale,
                "largest": max(values) * scale,
                "per hour": None if slope is None else slope * scale,
            }
        )
    return table


def settings() -> argparse.Namespace:
    """Read the command line."""
    arguments = parser(__doc__)
    arguments.add_argument("--hours", type=float, default=3)
    arguments.add_argument("--level", default="trace", choices=("trace", "poll"))
    arguments.add_argument("--every", type=float, default=60, help="seconds from look to look")
    arguments.add_argument("--warm-up", type=float, default=10, help="minutes that growth leaves out")
    arguments.add_argument("--at-once", type=int, default=2, help="tasks at the same time")
    arguments.add_argument("--tasks", nargs="*", help="only those with one of these words in their name")
    arguments.add_argument("--formats", default="torch,dcp,safetensors", help="of the job's saves, with commas")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--dir", type=Path, default=DISK, help="on which disk to work")
    arguments.add_argument("--out", type=Path, help="where each look goes, as CSV; without it nowhere")
    return arguments.parse_args()


def main() -> None:
    """Measure and print."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the agent ends, the folder goes
    options = settings()
    tasks, notes = chosen(options.tasks)
    with tempfile.TemporaryDirectory(prefix="soak-", dir=options.dir, ignore_cleanup_errors=True) as directory:
        office = Office(Path(directory), (options.level,))
        office.root.chmod(0o755)  # PostgreSQL gives up root
        make_store(office.store)
        job = JobBeside(office.root / "training", tuple(options.formats.split(",")))
        recorder, port, over, began = office.recorder(options.level), _free_port(), threading.Event(), time.monotonic()
        rows: list[dict[str, float | None]] = []
        with recorder.agent("--listen", f"127.0.0.1:{port}") as process:
            agent = psutil.Process(process.pid)

            def look() -> dict[str, float | None]:
                return looked(agent, recorder.database, port, began)

            eyes = threading.Thread(
                target=lambda: rows.extend(watch(look, options.out, options.every, over)), daemon=True
            )
            eyes.start()
            job.start()
            try:
                office.work(tasks, at_once=options.at_once, seconds=3600 * options.hours, seed=options.seed)
            finally:
                job.end()
                time.sleep(15)  # what was saved last is judged
                over.set()
                eyes.join()
            if process.poll() is not None:
                notes.append(f"THE AGENT ENDED by itself with {process.returncode}")
        findings = office.findings(options.level)
        compared = job.compared(findings)
        alarms = [finding for finding in findings if finding.task in {done.task for done in office.done}]
        notes += [f"job: {summary(compared)}", *(f"job: {line}" for line in otherwise(compared))]
        notes += [f"false alarm: {finding}" for finding in alarms if not job.owns(finding)]
        notes.append(f"{len(office.done)} pieces of work, {len(rows)} looks")
    show(
        f"soak at {options.level}, {options.hours:g} h",
        grown(rows, 60 * options.warm_up),
        as_json=options.json,
        notes=notes,
    )


def _is_sampler(process: psutil.Process) -> bool:
    try:
        return process.name().startswith("ckptprof:sample")
    except psutil.Error:
        return False


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


if __name__ == "__main__":
    main()
