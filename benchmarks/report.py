"""What a command costs from a cold start: CPU of the process, user and system, over a month of generated history."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ckptprof.model import (
    Checkpoint,
    Evidence,
    Kind,
    Level,
    Pattern,
    PatternClass,
    Point,
    Session,
    Stream,
    Writer,
)
from ckptprof.store.writer import StoreWriter
from contenders import ckptprof
from figures import median, parser, quantile, show

SECOND_NS = 1_000_000_000
INTERVAL_NS = 900 * SECOND_NS


def history(path: Path, days: float) -> int:
    """Fill a database with a save per 15 minutes and a restore per day; return the number of checkpoints."""
    now_ns = time.time_ns()
    begin_ns = now_ns - int(days * 86400 * SECOND_NS)
    saves = [save(number, begin_ns + number * INTERVAL_NS) for number in range(int(days * 96))]
    writer = StoreWriter(path)
    writer.begin_session(
        Session(
            uid="life", host="node-1", boot_id="boot", kernel="6.18", version="0", level="poll",
            start_ns=begin_ns, end_ns=now_ns, clean=True,
        )
    )  # fmt: skip
    for start in range(0, len(saves), 500):
        writer.add_checkpoints(saves[start : start + 500])
    writer.close()
    return len(saves)


def save(number: int, start_ns: int) -> Checkpoint:
    """Return a save of eight ranks with all that detection gives."""
    end_ns = start_ns + (20 + number % 7) * SECOND_NS
    restore = number % 96 == 95
    path = f"/checkpoints/run-7/step-{number * 100}"
    size = 14_000_000_000 + number % 11
    writers = tuple(Writer(pid=5000 + rank, comm="python", bytes=size // 8, rank=rank) for rank in range(8))
    return Checkpoint(
        uid=f"boot/{number}",
        kind=Kind.RESTORE if restore else Kind.SAVE,
        job="train.py",
        framework="torch-dcp",
        step=number * 100,
        ranks=8,
        start_ns=start_ns,
        end_ns=end_ns,
        durable_ns=None,
        bytes=size,
        files=9,
        path=path,
        writers=writers,
        mode=None,
        stall_ns=None,
        pattern=Pattern(class_=PatternClass.SEQUENTIAL_LARGE, sequential_share_bytes=0.998, operations=14000),
        verdict=None,
        level=Level.POLL,
        blind=("The sizes of single writes were not seen: only their mean per look.",),
        evidence=(
            Evidence(name="format", weight=0.4, text="the name and first bytes of a checkpoint"),
            Evidence(name="ranks", weight=0.3, text="8 processes of one job wrote one directory"),
        ),
        confidence=0.98,
        streams=tuple(
            Stream(
                pid=writer.pid, comm="python", path=f"{path}/__{writer.rank}_0.distcp", bytes=writer.bytes,
                size=writer.bytes, start_ns=start_ns, end_ns=end_ns,
            )
            for writer in writers
        ),
        timeline=tuple(
            Point(at_ns, at_ns + SECOND_NS, size // 20) for at_ns in range(start_ns, end_ns, SECOND_NS)
        ),
    )  # fmt: skip


def cost(command: list[str]) -> tuple[float, float]:
    """Return CPU and wall seconds of one run."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime, time.perf_counter() - started


def main() -> None:
    """Measure and print."""
    arguments = parser(__doc__)
    arguments.add_argument("--days", type=float, default=30)
    arguments.add_argument("--runs", type=int, default=15)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="ckptprof-bench-") as directory:
        path = Path(directory) / "month.db"
        count = history(path, options.days)
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "--help": ckptprof("--help"),
            "version": ckptprof("version"),
            f"report of {count} checkpoints": ckptprof("report", "--db", str(path)),
            "report --limit 20": ckptprof("report", "--limit", "20", "--db", str(path)),
            "report --json": ckptprof("report", "--json", "--db", str(path)),
            "list": ckptprof("list", "--db", str(path)),
            "show": ckptprof("show", "1", "--db", str(path)),
        }
        costs: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for _ in range(options.runs):
            for name, command in commands.items():
                costs[name].append(cost(command))
    rows: list[dict[str, Any]] = [
        {
            "command": name,
            "cpu_ms": median([cpu for cpu, _ in runs]) * 1e3,
            "cpu_p90_ms": quantile([cpu for cpu, _ in runs], 0.9) * 1e3,
            "wall_ms": median([wall for _, wall in runs]) * 1e3,
        }
        for name, runs in costs.items()
    ]
    show("report", rows, as_json=options.json)


if __name__ == "__main__":
    main()
