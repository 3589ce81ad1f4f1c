"""What a look at Python stacks and at a thread's times costs us, and the process that is looked at.

python benchmarks/stacks_cost.py --looks 40
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.processes import Process
from ckptprof_collectors.pystacks import dump, find_program, parse
from ckptprof_collectors.threads import ThreadClock

TRAINER = """
import sys, time, torch
torch.set_num_threads(1)
work = torch.randn(100, 100)
print(flush=True)
while True:
    began, longest, steps, until = time.monotonic(), 0.0, 0, time.monotonic() + 2.0
    while began < until:
        work = torch.tanh(work @ work)
        now = time.monotonic()
        longest, began, steps = max(longest, now - began), now, steps + 1
    print(steps, longest, flush=True)
"""


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--looks", type=int, default=40)
    looks = parser.parse_args().looks
    program = find_program()
    assert program is not None, "py-spy is not installed"
    with subprocess.Popen([sys.executable, "-c", TRAINER], stdout=subprocess.PIPE, text=True) as trainer:
        assert trainer.stdout is not None
        trainer.stdout.readline()
        lines = [trainer.stdout.readline().split() for _ in range(2)]
        walls, costs = [], []
        for _ in range(looks):
            began = time.perf_counter()
            raw, complaint, cost_ns = dump(program, trainer.pid)
            walls.append(1e3 * (time.perf_counter() - began))
            costs.append(cost_ns / 1e6)
            assert parse(raw), complaint
        during = [trainer.stdout.readline().split() for _ in range(max(1, int(sum(walls) / 2000)))]
        clock = ThreadClock(Process(KernelFs(), trainer.pid))
        print(f"py-spy, {looks} looks: CPU median {statistics.median(costs):.1f} ms, max {max(costs):.1f} ms; "
              f"wall median {statistics.median(walls):.0f} ms, max {max(walls):.0f} ms")  # fmt: skip
        for name, rows in (("alone", lines), ("looked at without a pause", during)):
            rate = statistics.median(int(steps) / 2 for steps, _ in rows)
            worst = max(float(longest) for _, longest in rows)
            print(f"trainer {name}: {rate:.0f} steps/s, longest step {1e3 * worst:.1f} ms")
        for moved in (False, True):
            used = time.thread_time()
            for _ in range(20_000):
                clock.read(moved=moved)
            print(f"schedstat{' and io' if moved else ''}: {(time.thread_time() - used) / 20_000 * 1e6:.2f} us a read")
        trainer.kill()


if __name__ == "__main__":
    main()
