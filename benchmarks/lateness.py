"""How late the sampler's ticks are while busy loops hold every CPU.

The sampler's own loop runs in a process of its own, at a fixed rate; each tick's lateness is the time between when it
was due and when it began. Besides as it is started by the agent: with a nicer value, and in the real-time class.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from typing import Any

from contenders import computing, proving
from figures import parser, quantile, show

BUSY = "while True: pass"
SAMPLER = """
import json, os, sys, threading, time
from ckptprof.service.sampler.outputqueue import OutputQueue
from ckptprof.service.sampler_options import SamplerOptions
from ckptprof.service.sampler.sampler_loop import Sampler
from ckptprof_collectors.kernelfs import KernelFs

class Timed(Sampler):
    late = []

    def tick(self, now_ns):
        self.late.append(max(0, now_ns - self._due_ns))  # an event may wake it before
        return super().tick(now_ns)

rate = float(sys.argv[1])
null = os.open(os.devnull, os.O_WRONLY)
timed = Timed(SamplerOptions(uid="bench", base_hz=rate, burst_hz=rate, idle_hz=rate), KernelFs(), OutputQueue(null), 0)
timed.run()
print(json.dumps(timed.late[int(rate):] or timed.late))  # the first second finds every process of the host
"""


def lateness_ms(seconds: float, hz: float, busy: int, setup: list[str]) -> list[float]:
    """Return the lateness of every tick; raises CalledProcessError where the scheduling is not allowed."""
    with contextlib.ExitStack() as stack:
        loops = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(busy)]
        for one in loops:
            stack.callback(one.wait)
            stack.callback(one.kill)
        stack.enter_context(proving("the busy loops", loops, computing(loops)))
        sampler = subprocess.Popen(
            [*setup, sys.executable, "-c", SAMPLER, str(hz)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        time.sleep(seconds)
        out, _ = sampler.communicate()
    if sampler.returncode:
        raise subprocess.CalledProcessError(sampler.returncode, setup)
    return [late_ns / 1e6 for late_ns in json.loads(out)]


def main() -> None:
    """Measure and print."""
    arguments = parser(__doc__)
    arguments.add_argument("--seconds", type=float, default=30)
    arguments.add_argument("--rates", type=float, nargs="*", default=[10, 25])
    arguments.add_argument("--busy", type=int, default=(os.cpu_count() or 1) + 1)
    options = arguments.parse_args()
    rows: list[dict[str, Any]] = []
    ways: dict[str, list[str]] = {"default": [], "nice -10": ["nice", "-n", "-10"], "fifo": ["chrt", "--fifo", "1"]}
    for name, setup in ways.items():
        for hz in options.rates:
            try:
                values = lateness_ms(options.seconds, hz, options.busy, setup)
            except subprocess.CalledProcessError:
                continue  # not allowed here
            rows.append(
                {
                    "scheduling": name,
                    "hz": hz,
                    "busy_loops": options.busy,
                    "ticks": len(values),
                    "p50_ms": quantile(values, 0.5),
                    "p99_ms": quantile(values, 0.99),
                    "max_ms": max(values),
                }
            )
    show("lateness", rows, as_json=options.json)


if __name__ == "__main__":
    main()
