"""What being watched costs the job: CPU and wall time of the same writes alone, under `ckptprof run`, beside the agent.

A writer fills a file on tmpfs (or with --work on a disk) again and again in writes of 64 KiB or 1 MiB;
its own clocks count, not its start. The ways take turns, and "alone" comes twice: the second against the first is the
noise.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from contenders import agent, ckptprof, isolate
from figures import median, parser, show

WRITER = """
import json, os, sys, time
path, size, total = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
block = bytes(size)
fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
for _ in range(total // size // 4):  # the pages are there, so that no round pays for them
    os.write(fd, block)
wall = time.perf_counter()
cpu = time.process_time()
for _ in range(4):
    os.lseek(fd, 0, os.SEEK_SET)
    for _ in range(total // size // 4):
        os.write(fd, block)
print(json.dumps([time.process_time() - cpu, time.perf_counter() - wall]))
"""


def once(directory: Path, size: int, total: int, prefix: list[str]) -> tuple[float, float]:
    """Return CPU and wall seconds of one run of the writer."""
    command = [*prefix, sys.executable, "-c", WRITER, str(directory / "file.bin"), str(size), str(total)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    cpu, wall = json.loads(done.stdout.splitlines()[-1])
    return cpu, wall


def measure(directory: Path, size: int, options: Any) -> list[dict[str, Any]]:
    """Return the rows of one size of write."""
    total = options.megabytes << 20
    under = ckptprof("run", "--quiet", "--db", str(directory / "run.db"), "--")
    costs: dict[str, list[tuple[float, float]]] = {"alone": [], "alone again": [], "run": [], "agent": []}
    for _ in range(options.pairs):
        costs["alone"].append(once(directory, size, total, []))
        costs["run"].append(once(directory, size, total, under))
        costs["alone again"].append(once(directory, size, total, []))
        with agent(directory / "agent.db"):
            time.sleep(1)
            costs["agent"].append(once(directory, size, total, []))
    writes = total // size
    return [
        {
            "write": f"{size >> 10} KiB",
            "how": how,
            "cpu_us_per_write": median([cpu for cpu, _ in runs]) / writes * 1e6,
            "cpu_ratio": median([own[0] / alone[0] for own, alone in zip(runs, costs["alone"], strict=True)]),
            "wall_ratio": median([own[1] / alone[1] for own, alone in zip(runs, costs["alone"], strict=True)]),
        }
        for how, runs in costs.items()
    ]


def main() -> None:
    """Measure and print."""
    arguments = parser(__doc__)
    arguments.add_argument("--pairs", type=int, default=9)
    arguments.add_argument("--megabytes", type=int, default=2048, help="written per run")
    arguments.add_argument("--sizes", type=int, nargs="*", default=[64 << 10, 1 << 20])
    arguments.add_argument(
        "--work", type=Path, help="where to write; default: /dev/shm, so that no disk adds its noise"
    )
    options = arguments.parse_args()
    isolate()
    work = options.work or (Path("/dev/shm") if Path("/dev/shm").is_dir() else None)  # noqa: S108 - tmpfs is the point
    rows: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ckptprof-bench-", dir=work)))
        for size in options.sizes:
            rows += measure(directory, size, options)
    show("workload", rows, as_json=options.json)


if __name__ == "__main__":
    main()
