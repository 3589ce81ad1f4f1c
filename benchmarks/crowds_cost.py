"""What the sampler alone costs beside a crowd of each kind; its frames are dropped.

    python benchmarks/crowds_cost.py --level poll --crowds idle files mappings --calls

CPU is the sampler's own clock (all its threads), in percent of a core; system calls a second are counted by strace in
a window of their own, and only with `--calls`, since that slows it down. While polling, as root, all happens in a PID
namespace of its own; at trace only the crowd is watched, as `ckptprof run` does, since there the whole host is seen.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from beside.situations import SITUATIONS, crowded
from ckptprof.recording import Frame, Header
from ckptprof.service.options import Control, SamplerOptions
from ckptprof.service.recorder.samplerprocess import SamplerProcess, new_uid
from contenders import cpu_ns, isolate
from figures import machine, median, parser, show

CROWDS = [name for name in SITUATIONS if name != "everyday"]
_CALLS = re.compile(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", re.MULTILINE)


class Sink:
    """A sampler whose frames are dropped, and counted by kind of sample."""

    def __init__(self, options: SamplerOptions, *, family: bool) -> None:
        """Start it; of a `family` only who is named later is watched."""
        self.samples: dict[str, int] = {}
        self.level = ""
        self._process = SamplerProcess(options)
        self._family = family
        self._over = threading.Event()
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()
        if not self._begun.wait(60):
            raise SystemExit("the sampler does not begin")

    def _drain(self) -> None:
        while not self._over.is_set():
            select.select([self._process.fileno()], [], [], 0.5)
            messages = self._process.read()
            if messages is None:
                return
            for message in messages:
                if isinstance(message, Header):
                    self.level = message.level
                    self._begun.set()
                elif isinstance(message, Frame):
                    for sample in message.samples:
                        name = type(sample).__name__
                        self.samples[name] = self.samples.get(name, 0) + 1

    def follow(self, pid: int) -> None:
        """Watch a process and its children, if a family is watched."""
        if self._family:
            self._process.control(Control(root_pid=pid))

    @property
    def pid(self) -> int:
        """Return its pid."""
        return self._process.pid

    def cpu_ns(self) -> int:
        """Return the CPU time of all its threads so far."""
        return cpu_ns(self.pid)

    def close(self) -> None:
        """End it."""
        self._over.set()
        self._thread.join()
        self._process.kill()


def calls(pid: int, seconds: float) -> dict[str, float]:
    """Return how many system calls of each kind a process makes a second."""
    with tempfile.NamedTemporaryFile("r") as told:
        tracer = subprocess.Popen(["strace", "-f", "-c", "-o", told.name, "-p", str(pid)], stderr=subprocess.DEVNULL)
        time.sleep(seconds)
        tracer.send_signal(signal.SIGINT)
        tracer.wait(20)
        found = {name: int(count) / seconds for count, name in _CALLS.findall(told.read())}
    return {name: rate for name, rate in found.items() if rate >= 1 and name != "total"}


def measure(name: str, level: str, options: Any) -> dict[str, Any]:
    """Return the row of one crowd."""
    situation = SITUATIONS[name]
    if situation.count is not None:
        situation = crowded(name, count=int(situation.count * options.scale))
    family = level == "trace"
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ckptprof-bench-", dir=options.work)))
        sink = Sink(
            SamplerOptions(uid=new_uid(), level=level, only_family=family, monitor_pids=(os.getpid(),)), family=family
        )
        stack.callback(sink.close)
        seconds = options.settle + options.window * options.windows
        if (pid := stack.enter_context(situation.make(work, seconds))) is not None:
            sink.follow(pid)
        time.sleep(options.settle)
        shares, sampled = [], dict(sink.samples)
        for _ in range(options.windows):
            before, began = sink.cpu_ns(), time.monotonic_ns()
            time.sleep(options.window)
            shares.append(100 * (sink.cpu_ns() - before) / (time.monotonic_ns() - began))
        seconds = options.window * options.windows
        told = {kind: (number - sampled.get(kind, 0)) / seconds for kind, number in sink.samples.items()}
        made = calls(sink.pid, options.window) if options.calls else {}
    row: dict[str, Any] = {"crowd": name, "count": situation.count, "level": sink.level}
    row |= {"percent": median(shares), "min": min(shares), "max": max(shares)}
    row["samples a second"] = _most(told)
    if options.calls:
        row["calls a second"] = f"{sum(made.values()):.0f}: {_most(made)}"
    return row


def _most(rates: dict[str, float]) -> str:
    most = sorted(rates.items(), key=lambda item: -item[1])[:6]
    return " ".join(f"{name} {rate:.0f}" for name, rate in most if rate >= 0.5)


def main() -> None:
    """Measure and print."""
    arguments = parser(__doc__)
    arguments.add_argument("--level", choices=["poll", "trace"], default="poll")
    arguments.add_argument("--crowds", nargs="*", default=CROWDS, choices=CROWDS)
    arguments.add_argument("--scale", type=float, default=1.0, help="so many times the usual number")
    arguments.add_argument("--settle", type=float, default=20.0, help="seconds before the first window")
    arguments.add_argument("--window", type=float, default=10.0, help="seconds")
    arguments.add_argument("--windows", type=int, default=3)
    arguments.add_argument("--calls", action="store_true", help="count its system calls, too, in a further window")
    arguments.add_argument("--work", type=Path, help="where the crowds have their files; default: the temporary folder")
    options = arguments.parse_args()
    if options.level == "poll":
        isolate()
    rows = []
    for name in options.crowds:
        rows.append(measure(name, options.level, options))
        print(rows[-1], file=sys.stderr)
    show("crowds_cost", rows, as_json=options.json, notes=[f"{name}: {value}" for name, value in machine().items()])


if __name__ == "__main__":
    sys.exit(main())
