"""Real work for as long as you like under an agent of each level: false alarms, what is missed of a job, and growth.

    python benchmarks/soak.py --minutes 30
    python benchmarks/soak.py --minutes 180 --levels trace --out soak.csv

Copies, downloads, installs, builds, databases, logs, data sets, core dumps and the like (tests/e2e/everyday/) are done
again and again in random order, while a training job saves and restores all the time. Whatever is reported of the work
as a save or a restore is a false alarm; the job's own log says what is missed of it, or invented. `copy` is listed, and
so are others' checkpoints on this host. Of each agent are sampled memory, descriptors, CPU, store, lateness and losses:
each row of `--out` is one sample; the table has the first, last and largest, and how much it grew per hour, the slope
of a straight line (least squares) after the first `--warm-up` minutes. The exit code is 1 at any false alarm, an event
of the job that is missed, or work that failed each time. Needs 6 GB of disk.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import signal
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from contenders import ROOT, free_port
from figures import machine, markdown, parser, show

sys.path[:0] = [str(ROOT / "tests" / "e2e"), str(ROOT / "examples")]
from everyday.jobbeside import JobBeside, otherwise, summary  # noqa: E402 - found by the line above
from everyday.rounds import ELSEWHERE, Finding, Office  # noqa: E402 - likewise
from everyday.store import make_store  # noqa: E402 - likewise
from everyday.table import TASKS  # noqa: E402 - likewise

ROLES = ("recorder", "sampler")
METRICS = (
    "sampler_ticks_total", "sampler_late_ticks_total", "sampler_lateness_seconds_total", "sampler_dropped_frames_total",
    "recorder_dropped_frames_total", "recorder_late_frames_total", "recorder_detection_faults_total",
    "recorder_detection_memory_bytes", "recorder_detection_forgotten_bytes_total",
    "sampler_restarts_total", "trace_lost_operations_total", "trace_lost_bytes_total", "trace_lost_sessions_total",
    "trace_lost_events_total",
)  # fmt: skip
AFTER_SECONDS = 15  # in which what was saved last is judged
Sample = dict[str, float | None]


class Watched:
    """An agent of one level, sampled until it is over; raises SystemExit then if it has ended by itself."""

    def __init__(self, stack: contextlib.ExitStack, office: Office, level: str, options: argparse.Namespace) -> None:
        """Start it."""
        port, recorder = free_port(), office.recorder(level)
        self.level, self.database, self.rows = level, Path(recorder.database), list[Sample]()
        self._process = stack.enter_context(recorder.agent("--listen", f"127.0.0.1:{port}"))
        self._agent, self._url, self._began = (
            psutil.Process(self._process.pid),
            f"http://127.0.0.1:{port}/metrics",
            time.monotonic(),
        )
        self._over = threading.Event()
        out = options.out and options.out.with_stem(f"{options.out.stem}-{level}")
        self._thread = threading.Thread(target=self._sample, args=(out, options.every), daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Take no more samples."""
        self._over.set()
        self._thread.join()
        if self._process.poll() is not None:
            raise SystemExit(f"the agent at {self.level} ended by itself with {self._process.returncode}")

    def _sample(self, out: Path | None, every_seconds: float) -> None:
        """Take samples; each row is written at once, so that a run that is cut short has left its rows."""
        with (
            (out or Path("/dev/null")).open("w", encoding="utf-8", newline="") as file,
            contextlib.suppress(psutil.Error),
        ):
            while True:
                self.rows.append(self._row())
                writer = csv.DictWriter(file, list(self.rows[0]))
                if len(self.rows) == 1:
                    writer.writeheader()
                writer.writerow(self.rows[-1])
                file.flush()
                if self._over.wait(every_seconds):
                    return

    def _row(self) -> Sample:
        row: Sample = {"seconds": round(time.monotonic() - self._began, 1)}
        samplers = [child for child in self._agent.children() if _is_sampler(child)]
        for role, process in zip(ROLES, (self._agent, samplers[-1] if samplers else None), strict=True):
            row |= {f"{role}_{name}": None for name in ("pss_bytes", "private_bytes", "descriptors", "cpu_seconds")}
            if process is None:
                continue
            with contextlib.suppress(psutil.Error):
                memory, times = process.memory_full_info(), process.cpu_times()
                row[f"{role}_pss_bytes"], row[f"{role}_private_bytes"] = memory.pss, memory.uss
                row[f"{role}_descriptors"] = process.num_fds()
                row[f"{role}_cpu_seconds"] = round(times.user + times.system, 2)
        for name, path in (("database_bytes", self.database), ("wal_bytes", Path(f"{self.database}-wal"))):
            row[name] = path.stat().st_size if path.exists() else None
        row |= dict.fromkeys(METRICS)
        with contextlib.suppress(OSError), urllib.request.urlopen(self._url) as page:  # noqa: S310 - loopback
            for line in page.read().decode().splitlines():
                name, _, value = line.partition(" ")
                if (short := name.removeprefix("ckptprof_")) in row:
                    row[short] = float(value)
        return row


def _is_sampler(process: psutil.Process) -> bool:
    try:
        return process.name().startswith("ckptprof:sample")
    except psutil.Error:
        return False


def grown(level: str, rows: Sequence[Sample], warm_up_seconds: float) -> list[dict[str, Any]]:
    """Return a line for each figure: first, last, largest, and its growth per hour after the warm-up."""
    table = []
    for name in rows[0]:
        seen = [(row["seconds"] or 0.0, value) for row in rows if (value := row[name]) is not None]
        later = [(at, value) for at, value in seen if at >= warm_up_seconds]
        slope = statistics.linear_regression(*zip(*later, strict=True)).slope * 3600 if len(later) > 1 else None
        if name == "seconds" or not seen:
            continue
        values, scale = [value for _, value in seen], 1e-6 if name.endswith("_bytes") else 1.0
        line = {"level": level, "figure": name.removesuffix("_bytes") + (" (MB)" if scale != 1.0 else "")}
        figures = {"first": values[0] * scale, "last": values[-1] * scale, "largest": max(values) * scale}
        table.append(line | figures | {"per hour": None if slope is None else slope * scale})
    return table


def of_tasks(office: Office, alarms: Sequence[Finding], copies: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return a line per task: how often it was done, and what was reported of it at each level."""
    times = Counter(done.task for done in office.done)
    failed = Counter(done.task for done in office.done if done.failure)
    table = []
    for name in [*times, *sorted({finding.task for finding in (*alarms, *copies)} - set(times))]:
        row: dict[str, Any] = {"task": name, "times": times[name], "failed": failed[name]}
        for what, findings in (("alarms", alarms), ("copies", copies)):
            mine = Counter(finding.level for finding in findings if finding.task == name)
            row |= {f"{level} {what}": mine[level] for level in office.levels}
        table.append(row)
    return table


def settings() -> argparse.Namespace:
    """Read the command line."""
    arguments = parser(__doc__)
    arguments.add_argument("--minutes", type=float, default=30)
    arguments.add_argument("--levels", nargs="*", default=["trace", "poll"], choices=("trace", "poll"))
    arguments.add_argument("--every", type=float, default=60, help="seconds from sample to sample")
    arguments.add_argument("--warm-up", type=float, default=10, help="minutes that growth leaves out")
    arguments.add_argument("--at-once", type=int, default=2, help="tasks at the same time")
    arguments.add_argument("--tasks", nargs="*", default=[""], help="only those with one of these words in their name")
    arguments.add_argument("--formats", nargs="*", default=["torch", "dcp", "safetensors"], help="of the job's saves")
    arguments.add_argument("--whole-host", action="store_true", help="count what is reported of other folders, too")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--dir", type=Path, default=Path("/var/tmp"), help="on which disk")  # noqa: S108 - no memory
    arguments.add_argument("--out", type=Path, help="where each sample goes, as CSV; one file a level")
    arguments.add_argument("--markdown", action="store_true", help="print tables for a page")
    return arguments.parse_args()


def watched_work(office: Office, job: JobBeside, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Do the work beside the job; return how the agents grew."""
    tasks = [task for task in TASKS if any(name in task.name for name in options.tasks) and not task.missing]
    with contextlib.ExitStack() as stack:
        agents = [Watched(stack, office, level, options) for level in office.levels]
        job.start()
        try:
            office.work(tasks, at_once=options.at_once, seconds=60 * options.minutes, seed=options.seed)
        finally:
            job.end()  # raises JobBrokeError if one of its lives has failed
        time.sleep(AFTER_SECONDS)
        for agent in agents:
            agent.end()
    return [line for agent in agents for line in grown(agent.level, agent.rows, 60 * options.warm_up)]


def main() -> int:
    """Measure and print."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the agents end, the folder goes
    options = settings()
    with tempfile.TemporaryDirectory(prefix="soak-", dir=options.dir, ignore_cleanup_errors=True) as directory:
        office = Office(Path(directory), tuple(options.levels))
        make_store(office.store)
        job = JobBeside(office.root / "training", tuple(options.formats))
        growth = watched_work(office, job, options)
        found = [finding for level in office.levels for finding in office.findings(level) if not job.owns(finding)]
        copies = [finding for level in office.levels for finding in office.findings(level, "copy")]
        compared = {level: job.compared(office.findings(level)) for level in office.levels}
        notes = [f"job, {level}: {line}" for level in compared for line in otherwise(compared[level])]
    alarms = [one for one in found if options.whole_host or one.task != ELSEWHERE]
    of_job = [{"level": level, **summary(comparison)} for level, comparison in compared.items()]
    failures = Counter((done.task, done.failure) for done in office.done if done.failure)
    broken = sorted({done.task for done in office.done} - {done.task for done in office.done if not done.failure})
    notes += [f"failed {count} times: {task}: {why}" for (task, why), count in failures.items()]
    notes += [f"FALSE ALARM {finding}" for finding in alarms]
    notes += [f"not counted: {finding}" for finding in found if finding not in alarms]
    notes += [f"copy {finding}" for finding in copies if finding.task != ELSEWHERE]
    notes += [f"not done, {task.missing} is not installed: {task.name}" for task in TASKS if task.missing]
    notes += [f"{name}: {value}" for name, value in machine().items()]
    tables = {"soak": of_tasks(office, alarms, copies), "soak of the job": of_job, "soak, growth": growth}
    for name, table in tables.items():
        if options.markdown:
            print(markdown(table), end="\n\n")
        else:
            show(name, table, as_json=options.json, notes=notes if table is growth else ())
    told = all(row["found"] and not row["missed"] and not row["invented"] for row in of_job)
    return int(bool(alarms or broken) or not told)


if __name__ == "__main__":
    sys.exit(main())
