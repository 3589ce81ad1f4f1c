"""CPU and memory of `ckptprof agent` against node_exporter in the same windows, with many processes against pidstat.

Every window is shared by the agent and two node_exporters, all scraped at 1 Hz: the first is the anchor of the ratio,
the second divided by the first is the noise (A/A). Idle: nothing trains. Writing: examples/train_numpy.py saves
256 MB every 5 s. As root it all happens in a PID namespace of its own with 150 idle processes, so that the programs of
others are not taken for jobs; their I/O and load are still felt. With many processes the agent is measured while the
two pidstats are stopped, too: the bytes that they read of /proc look to it like a job's, and it watches them closely.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from contenders import ROOT, Contender, agent, node_exporter, scraping, sleepers
from figures import median, parser, show

MODES = {"adaptive": (), "fixed 10 Hz": ("--fixed-rate", "--rate", "10")}
USUAL_PROCESSES = 150
_INSIDE = "CKPTPROF_BENCH_INSIDE"


def isolate() -> None:
    """Start this program again in a PID namespace of its own, if that is allowed; returns only if it is not."""
    if os.environ.get(_INSIDE) or os.geteuid() != 0:
        return
    command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if subprocess.run([*command, "true"], check=False, capture_output=True).returncode == 0:
        inside = subprocess.run([*command, sys.executable, *sys.argv], check=False, env={**os.environ, _INSIDE: "1"})
        raise SystemExit(inside.returncode)


@contextlib.contextmanager
def writing(directory: Path) -> Iterator[None]:
    """Let a job train and save while the block runs; it has saved once when the block begins."""
    truth = directory / "truth.jsonl"
    job = [sys.executable, str(ROOT / "examples/train_numpy.py"), "--dir", str(directory / "job")]
    job += ["--truth", str(truth), "--size-mb", "256", "--interval", "5", "--saves", "1000000"]
    process = subprocess.Popen(job, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not truth.exists() and process.poll() is None:
            time.sleep(0.1)
        yield
    finally:
        process.kill()
        process.wait()


def windows(contenders: list[Contender], count: int, seconds: float) -> dict[str, list[float]]:
    """Return the share of one core in percent that each contender used in each window."""
    shares: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    with scraping([contender.url for contender in contenders if contender.url]):
        for _ in range(count):
            before = {contender.name: contender.cpu_ns() for contender in contenders}
            started = time.monotonic_ns()
            time.sleep(seconds)
            elapsed = time.monotonic_ns() - started
            for contender in contenders:
                used = max(contender.cpu_ns() - before[contender.name], contender.least_ns)
                shares[contender.name].append(used / elapsed * 100)
    return shares


def against_node_exporter(mode: str, load: str, options: Any) -> dict[str, Any]:
    """Return the row of one mode of the agent under one load."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ckptprof-bench-", dir=options.work)))
        if load == "writing":
            stack.enter_context(writing(directory))
        ours = stack.enter_context(agent(directory / "ckptprof.db", *MODES[mode]))
        anchor, second = (stack.enter_context(node_exporter(name)) for name in ("anchor", "second"))
        with scraping([contender.url for contender in (ours, anchor, second) if contender.url]):
            time.sleep(options.settle)
        shares = windows([ours, anchor, second], options.windows, options.window)
        memory = ours.memory_bytes()
        by_process = list(ours.memory_by_process().values())
        theirs = anchor.memory_bytes()
    pairs = list(zip(shares["agent"], shares["anchor"], strict=True))
    noise = list(zip(shares["second"], shares["anchor"], strict=True))
    return {
        "load": load,
        "mode": mode,
        "agent_percent": median(shares["agent"]),
        "node_exporter_percent": median(shares["anchor"]),
        "ratio": median([own / anchor for own, anchor in pairs]),
        "ratio_min": min(own / anchor for own, anchor in pairs),
        "ratio_max": max(own / anchor for own, anchor in pairs),
        "aa_ratio": median([second / first for second, first in noise]),
        "rss_mb": memory[0] / 1e6,
        "pss_mb": memory[1] / 1e6,
        "recorder_rss_mb": by_process[0] / 1e6 if by_process else None,
        "sampler_rss_mb": by_process[1] / 1e6 if len(by_process) > 1 else None,
        "node_exporter_rss_mb": theirs[0] / 1e6,
    }


def against_pidstat(mode: str, options: Any) -> dict[str, Any]:
    """Return the row of one mode beside a thousand more idle processes."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ckptprof-bench-", dir=options.work)))
        stack.enter_context(sleepers(options.processes))
        ours = stack.enter_context(agent(directory / "ckptprof.db", *MODES[mode]))
        first, second = (stack.enter_context(Contender(f"pidstat{n}", ["pidstat", "-d", "1"])) for n in (1, 2))
        with scraping([ours.url or ""]):
            time.sleep(options.settle)
        shares = windows([ours, first, second], options.windows, options.window)
        for peer in (first, second):  # what they read of /proc looks like a restore to the agent
            peer.process.send_signal(signal.SIGSTOP)
        time.sleep(options.calm)
        alone = windows([ours], options.windows, options.window)["agent"]
        for peer in (first, second):
            peer.process.send_signal(signal.SIGCONT)
        memory = ours.memory_bytes()
    return {
        "load": f"{options.processes} more processes",
        "mode": mode,
        "agent_percent": median(alone),
        "pidstat_percent": median(shares["pidstat1"]),
        "ratio": median(alone) / median(shares["pidstat1"]),
        "agent_beside_pidstat_percent": median(shares["agent"]),
        "aa_ratio": median([a / b for a, b in zip(shares["pidstat2"], shares["pidstat1"], strict=True)]),
        "rss_mb": memory[0] / 1e6,
        "pss_mb": memory[1] / 1e6,
    }


def main() -> None:
    """Measure and print."""
    arguments = parser(__doc__)
    arguments.add_argument("--windows", type=int, default=6)
    arguments.add_argument("--window", type=float, default=30.0, help="seconds")
    arguments.add_argument("--settle", type=float, default=100.0, help="seconds: a new interpreter is watched for 90")
    arguments.add_argument("--calm", type=float, default=35.0, help="seconds: a busy process is watched for 30 more")
    arguments.add_argument("--processes", type=int, default=1000)
    arguments.add_argument("--usual", type=int, default=USUAL_PROCESSES, help="idle processes in every window")
    arguments.add_argument("--loads", nargs="*", default=["idle", "writing", "processes"])
    arguments.add_argument("--modes", nargs="*", default=list(MODES), choices=list(MODES))
    arguments.add_argument("--work", type=Path, help="where the job writes; default: the temporary directory")
    options = arguments.parse_args()
    isolate()
    rows = []
    with sleepers(options.usual):
        for load in (load for load in options.loads if load != "processes"):
            rows += [against_node_exporter(mode, load, options) for mode in options.modes]
        crowd = [against_pidstat(mode, options) for mode in options.modes] if "processes" in options.loads else []
    show("agent_cost", rows, as_json=options.json)
    if crowd:
        show("agent_cost, many processes", crowd, as_json=options.json)


if __name__ == "__main__":
    main()
