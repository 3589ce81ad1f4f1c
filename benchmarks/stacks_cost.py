"""What a look at Python stacks and at a thread's times costs us, and the process that is looked at.

    python benchmarks/stacks_cost.py [--pairs 20] [--seconds 2]

The target has the last core to itself and py-spy the first; windows with and without looks take turns in an order
drawn anew for each pair, and each pair is compared in itself. Run it on a quiet machine: it says how loaded it was.
In a window with looks one follows the other without a pause; ckptprof takes at most 40 a minute.
"""

from __future__ import annotations

import mmap
import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.processes.process import Process
from ckptprof_collectors.processes.pystacks import dump, find_program, parse
from ckptprof_collectors.processes.threads import ThreadClock
from figures import parser, show

TRAINER = """
import mmap, os, struct, sys, time, torch
os.sched_setaffinity(0, {int(sys.argv[2])})
torch.set_num_threads(1)
with open(sys.argv[1], "r+b") as stream:
    shared = mmap.mmap(stream.fileno(), 4096)
work = torch.randn(100, 100)
steps = 0
while True:
    began = time.perf_counter_ns()
    work = torch.tanh(work @ work)
    steps += 1
    took = time.perf_counter_ns() - began
    struct.pack_into("qq", shared, 0, steps, time.thread_time_ns())
    if took > struct.unpack_from("q", shared, 16)[0]:
        struct.pack_into("q", shared, 16, took)
"""
LOOSE_LOAD = 1.5  # a load average above it belongs to others: the target itself makes one


class Window(NamedTuple):
    """What the target did in one window."""

    steps_per_second: float
    steps_per_cpu_second: float
    longest_ms: float
    looks: int
    cpu_ms: float  # of py-spy, a look
    wall_ms: float
    failures: int


def window(shared: mmap.mmap, pid: int, program: str, seconds: float, *, looking: bool) -> Window:
    """Watch the target for a while, with or without looks at it."""
    costs, walls, failures = [], [], 0
    struct.pack_into("q", shared, 16, 0)
    steps, cpu_ns = struct.unpack_from("qq", shared, 0)
    began = time.perf_counter()
    while (left := began + seconds - time.perf_counter()) > 0:
        if not looking:
            time.sleep(left)
            continue
        at = time.perf_counter()
        raw, _, cost_ns, _ = dump(program, pid)
        walls.append(1e3 * (time.perf_counter() - at))
        costs.append(cost_ns / 1e6)
        failures += not parse(raw)
    took = time.perf_counter() - began
    steps_after, cpu_after_ns, longest_ns = struct.unpack_from("qqq", shared, 0)
    done = steps_after - steps
    return Window(
        done / took, done * 1e9 / max(1, cpu_after_ns - cpu_ns), longest_ns / 1e6, len(walls),
        statistics.median(costs or [0.0]), statistics.median(walls or [0.0]), failures,
    )  # fmt: skip


def interval(values: list[float]) -> tuple[float, float, float]:
    """Return the median, and the limits between which it lies in 95 of 100 draws from the values."""
    draw = random.Random(1)  # noqa: S311 - not for secrets
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(2000))
    return statistics.median(values), medians[50], medians[-51]


def row(what: str, unit: str, middle: float, low: float | None = None, high: float | None = None) -> dict[str, object]:
    """Return one figure; `low` and `high` hold it with 95 %."""
    return {"what": what, "unit": unit, "median": middle, "low": low, "high": high}


def compared(pairs: list[tuple[Window, Window]]) -> list[dict[str, object]]:
    """Return what looks cost and change, pair by pair."""
    looks = [on for _, on in pairs]
    rows = [
        row("looks", "number", sum(one.looks for one in looks)),
        row("looks that failed", "number", sum(one.failures for one in looks)),
        row("CPU of a look", "ms", statistics.median(one.cpu_ms for one in looks)),
        row("time of a look", "ms", statistics.median(one.wall_ms for one in looks)),
    ]
    for name, field in (("steps of the target", 0), ("steps of the target in its CPU time", 1)):
        rows.append(row(name, "% more", *interval([100 * (on[field] / off[field] - 1) for off, on in pairs])))
    rows.append(row("longest step, left alone", "ms", statistics.median(off.longest_ms for off, _ in pairs)))
    rows.append(row("longest step, looked at", "ms", statistics.median(on.longest_ms for on in looks)))
    return rows


def clock_costs(pid: int) -> list[dict[str, object]]:
    """Return what reading the thread's times costs."""
    clock = ThreadClock(Process(KernelFs(), pid))
    rows = []
    for moved in (False, True):
        used = time.thread_time()
        for _ in range(20_000):
            clock.read(moved=moved)
        cost_us = (time.thread_time() - used) / 20_000 * 1e6
        rows.append(row(f"read of schedstat{' and io' if moved else ''}", "us", cost_us))
    return rows


def main() -> None:
    """Print the figures."""
    arguments = parser(__doc__)
    arguments.add_argument("--pairs", type=int, default=20)
    arguments.add_argument("--seconds", type=float, default=2.0, help="of a window")
    options = arguments.parse_args()
    program = find_program()
    assert program is not None, "py-spy is not installed"
    cores = sorted(os.sched_getaffinity(0))
    assert len(cores) > 1, "it takes two cores"
    load = os.getloadavg()[0]
    os.sched_setaffinity(0, {cores[0]})  # py-spy inherits it
    with tempfile.NamedTemporaryFile() as place:
        place.truncate(4096)
        shared = mmap.mmap(place.fileno(), 4096)
        with subprocess.Popen([sys.executable, "-c", TRAINER, place.name, str(cores[-1])]) as trainer:
            try:
                while not struct.unpack_from("q", shared, 0)[0]:
                    time.sleep(0.1)
                window(shared, trainer.pid, program, 2.0, looking=True)  # warms both
                pairs = []
                for _ in range(options.pairs):
                    order = random.sample((False, True), 2)
                    made = {on: window(shared, trainer.pid, program, options.seconds, looking=on) for on in order}
                    pairs.append((made[False], made[True]))
                rows = [*compared(pairs), *clock_costs(trainer.pid)]
            finally:
                trainer.kill()
    after = os.getloadavg()[0]
    verdict = "quiet" if max(load, after - 2) < LOOSE_LOAD else "NOT QUIET: others had a part of these figures"
    note = f"load average {load:.1f} before, {after:.1f} after (two of it are ours): {verdict}"
    show("stacks_cost", rows, as_json=options.json, notes=[note])


if __name__ == "__main__":
    main()
