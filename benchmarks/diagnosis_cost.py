"""What looking at threads and limits costs the sampler, while a checkpoint runs and between checkpoints.

    python benchmarks/diagnosis_cost.py [--saves 12] [--megabytes 512] [--jobs torch-save dcp ranks] [--levels poll]

Three samplers watch the same job at the same time: one with the looks, two without, the second of which is the noise
(A/A). Each save is one pair: CPU time of the samplers from its begin until 0.4 s after its end, in percent of one core.
Between saves the job computes. Stacks are left out in all three: stacks_cost.py has them.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any

from ckptprof.recording import Frame
from ckptprof.service.options import Control, SamplerOptions
from ckptprof.service.recorder.samplerprocess import SamplerProcess, new_uid
from ckptprof_collectors.samples import CollectorFault, ThreadLook
from figures import parser, show

JOB = """
import os, subprocess, sys, time, warnings
kind, folder, megabytes, saves = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
ranks = 4 if kind == "ranks" else 1
rank = int(os.environ.get("RANK", ranks - 1 and -1))
if rank < 0:  # the launcher
    every = [subprocess.Popen([*sys.orig_argv], env={**os.environ, "RANK": str(n)}) for n in range(ranks)]
    sys.exit(max(one.wait() for one in every))
import torch
warnings.simplefilter("ignore")
torch.set_num_threads(1)
state = {f"layer{n}": torch.randn((megabytes << 13) // ranks, 4) for n in range(8)}  # each an eighth of it
def save(n):
    if kind == "dcp":
        import torch.distributed.checkpoint as dcp
        writer = dcp.FileSystemWriter(f"{folder}/step-{n % 2}", thread_count=8, overwrite=True)
        dcp.save(state, storage_writer=writer, no_dist=True)
    else:
        path = f"{folder}/step-{n % 2}-rank{rank}.pt"
        torch.save(state, path + ".tmp")
        with open(path + ".tmp", "r+b") as stream:
            os.fsync(stream.fileno())
        os.rename(path + ".tmp", path)
rank or sys.stdin.readline()
for n in range(saves):
    if rank:
        while not os.path.exists(f"{folder}/begin-{n}"):
            time.sleep(0.005)
    else:
        print("begin", flush=True)
        open(f"{folder}/begin-{n}", "w").close()
    save(n)
    rank or print("end", flush=True)
    until = time.monotonic() + 2.0
    while time.monotonic() < until:
        torch.tanh(state["layer0"][:1000])
        time.sleep(0.01)
"""
JOBS = ("torch-save", "dcp", "ranks")
TAIL_SECONDS = 0.4
WITH, WITHOUT, AGAIN = "with", "without", "without again"
LOOKS: dict[str, tuple[str, ...]] = {WITH: ("threads", "limits"), WITHOUT: (), AGAIN: ()}


class Watcher:
    """A sampler, its frames taken in, and its CPU time."""

    def __init__(self, level: Any, look_at: tuple[str, ...]) -> None:
        """Start it; it watches nothing yet."""
        options = SamplerOptions(
            uid=new_uid(), level=level, only_family=True, monitor_pids=(os.getpid(),), look_at=look_at
        )
        self.process = SamplerProcess(options)
        self.looks = 0
        self.faults: list[str] = []
        self._thread = threading.Thread(target=self._take, daemon=True)
        self._thread.start()

    def _take(self) -> None:
        os.set_blocking(self.process.fileno(), True)
        while (messages := self.process.read()) is not None:
            for frame in messages:
                if isinstance(frame, Frame):
                    self.looks += sum(isinstance(sample, ThreadLook) for sample in frame.samples)
                    self.faults += [s.reason for s in frame.samples if isinstance(s, CollectorFault)]

    def cpu_ns(self) -> int:
        """Return the CPU time of the process: clock ids of other processes are made as in linux/posix-timers.h."""
        return time.clock_gettime_ns((~self.process.pid << 3) | 2)

    def stop(self) -> None:
        """End it."""
        self.process.stop()
        self._thread.join(10)
        self.process.wait(10)


@contextlib.contextmanager
def watchers(level: str) -> Iterator[dict[str, Watcher]]:
    """Start all of them."""
    made = {name: Watcher(level, look_at) for name, look_at in LOOKS.items()}
    try:
        time.sleep(2.0)
        yield made
    finally:
        for watcher in made.values():
            watcher.stop()


def shares(made: dict[str, Watcher], seconds_from: float, before: dict[str, int]) -> dict[str, float]:
    """Return the percent of one core that each used since then."""
    elapsed = time.monotonic() - seconds_from
    return {name: (watcher.cpu_ns() - before[name]) / 1e7 / elapsed for name, watcher in made.items()}


def measure(level: str, kind: str, options: Any) -> dict[str, Any]:
    """Return the row of one job at one level."""
    during: list[dict[str, float]] = []
    between: list[dict[str, float]] = []
    lengths: list[float] = []
    with tempfile.TemporaryDirectory(prefix="ckptprof-bench-", dir=options.work) as folder, watchers(level) as made:
        command = [sys.executable, "-c", JOB, kind, folder, str(options.megabytes), str(options.saves + 1)]
        job = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for watcher in made.values():
            watcher.process.control(Control(root_pid=job.pid))
        time.sleep(8.0)  # torch is imported, and known
        told, lead = job.stdin, job.stdout
        assert told is not None
        assert lead is not None
        told.write(b"\n")
        told.flush()
        looks = 0
        for number in range(options.saves + 1):
            lead.readline()
            before = {name: watcher.cpu_ns() for name, watcher in made.items()}
            began = time.monotonic()
            lead.readline()
            length = time.monotonic() - began
            time.sleep(TAIL_SECONDS)
            used = shares(made, began, before)
            before = {name: watcher.cpu_ns() for name, watcher in made.items()}
            began = time.monotonic()
            time.sleep(1.2)
            if number:  # the first one warms up
                lengths.append(length)
                during.append(used)
                between.append(shares(made, began, before))
            else:
                looks = made[WITH].looks
        job.wait()
        told.close()
        lead.close()
        looks = made[WITH].looks - looks
        faults = [fault for watcher in made.values() for fault in watcher.faults]
    assert not faults, faults
    return {
        "job": kind,
        "level": level,
        "saves": len(during),
        "save_s": statistics.median(lengths),
        "looks_per_s": looks / sum(length + TAIL_SECONDS for length in lengths),
        "with_percent": statistics.median(one[WITH] for one in during),
        "without_percent": statistics.median(one[WITHOUT] for one in during),
        "looks_percent": statistics.median(one[WITH] - one[WITHOUT] for one in during),
        "ratio": statistics.median(one[WITH] / one[WITHOUT] for one in during),
        "aa_percent": statistics.median(one[AGAIN] - one[WITHOUT] for one in during),
        "aa_ratio": statistics.median(one[AGAIN] / one[WITHOUT] for one in during),
        "between_percent": statistics.median(one[WITH] - one[WITHOUT] for one in between),
        "between_aa_percent": statistics.median(one[AGAIN] - one[WITHOUT] for one in between),
    }


def main() -> None:
    """Print the figures."""
    arguments = parser(__doc__)
    arguments.add_argument("--saves", type=int, default=12)
    arguments.add_argument("--megabytes", type=int, default=512)
    arguments.add_argument("--jobs", nargs="*", choices=JOBS, default=list(JOBS))
    arguments.add_argument("--levels", nargs="*", choices=["poll", "trace"], default=["poll", "trace"])
    arguments.add_argument("--work", default="/var/tmp", help="where checkpoints go")  # noqa: S108 - a disk, not memory
    options = arguments.parse_args()
    load = os.getloadavg()[0]
    rows = [measure(level, kind, options) for level in options.levels for kind in options.jobs]
    note = f"load average {load:.1f} before, {os.getloadavg()[0]:.1f} after"
    show("diagnosis_cost", rows, as_json=options.json, notes=[note])


if __name__ == "__main__":
    main()
