"""What a command costs from a cold start, over generated history: CPU of the process (user and system) and memory."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ckptprof.model import (
    Checkpoint,
    Evidence,
    Interval,
    Kind,
    Level,
    Mode,
    Pattern,
    PatternClass,
    Point,
    Session,
    Stream,
    Writer,
)
from ckptprof.store.writer import StoreWriter
from ckptprof.verdicts import Account, Limit, Verdict
from contenders import ckptprof
from figures import median, parser, quantile, show

SECOND_NS = 1_000_000_000
INTERVAL_NS = 900 * SECOND_NS


def history(path: Path, number: int, ranks: int = 8, *, told: bool = False) -> None:
    """Fill a database with a save per 15 minutes and a restore per day; `told` gives each what a page draws."""
    now_ns = time.time_ns()
    begin_ns = now_ns - number * INTERVAL_NS
    writer = StoreWriter(path)
    writer.start_session(
        Session(
            uid="life", host="node-1", boot_id="boot", kernel="6.18", version="0", level="poll",
            start_ns=begin_ns, end_ns=now_ns, clean=True,
        )
    )  # fmt: skip
    for start in range(0, number, 500):
        some = [save(i, begin_ns + i * INTERVAL_NS, ranks) for i in range(start, min(number, start + 500))]
        writer.add_checkpoints([diagnosed(one) if told else one for one in some])
    writer.close()


def save(number: int, start_ns: int, ranks: int) -> Checkpoint:
    """Return a save with all that detection gives."""
    end_ns = start_ns + (20 + number % 7) * SECOND_NS
    restore = number % 96 == 95
    path = f"/checkpoints/run-7/step-{number * 100}"
    size = 14_000_000_000 + number % 11
    writers = tuple(Writer(pid=5000 + rank, comm="python", bytes=size // ranks, rank=rank) for rank in range(ranks))
    return Checkpoint(
        uid=f"boot/{number}",
        kind=Kind.RESTORE if restore else Kind.SAVE,
        job="train.py",
        framework="torch-dcp",
        step=number * 100,
        ranks=ranks,
        start_ns=start_ns,
        end_ns=end_ns,
        durable_ns=None,
        bytes=size,
        files=ranks + 1,
        path=path,
        writers=writers,
        mode=None,
        stall_ns=None,
        pattern=Pattern(class_=PatternClass.SEQUENTIAL_LARGE, sequential_share_bytes=0.998, operations=14000),
        verdict=None,
        level=Level.POLL,
        limitations=("The sizes of single writes were not seen: only their mean per look.",),
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


def diagnosed(one: Checkpoint) -> Checkpoint:
    """Return it with a verdict, the times of its ranks, when it blocked training and when it was durable."""
    number, spent_ns = one.step or 0, one.end_ns - one.start_ns
    limit = (Limit.DEVICE, Limit.SERIALIZE, Limit.STRAGGLER, Limit.NETWORK)[number // 100 % 4]
    seconds = spent_ns / SECOND_NS
    accounts = tuple(
        Account(limit=known, seconds=share * seconds, text="of the critical path")
        for known, share in ((limit, 0.7), (Limit.METADATA, 0.05), (None, 0.25))
    )
    verdict = Verdict(
        limit=limit, sentence=f"{seconds:.1f} s, of which {0.7 * seconds:.1f} s it waited", confidence=0.9,
        seconds=0.7 * seconds, evidence=("the device was 97 % busy",), excluded=("cpu: 12 % busy",), accounts=accounts,
    )  # fmt: skip
    writers = tuple(
        msgspec.structs.replace(
            writer, start_ns=one.start_ns, end_ns=one.end_ns - (writer.pid * 7 + number) % 5 * SECOND_NS
        )
        for writer in one.writers
    )
    changes: dict[str, Any] = {"mode": Mode.SYNC, "durable_ns": one.end_ns + 30 * SECOND_NS, "stall_ns": spent_ns}
    sizes = {"4096": [200, 900_000], "1048576": [13_000, one.bytes]}
    pattern = msgspec.structs.replace(one.pattern, size_histogram=sizes)
    blocked = (Interval(one.start_ns, one.end_ns),)
    return msgspec.structs.replace(
        one, verdict=verdict, writers=writers, blocked=blocked, pattern=pattern, streams=(), timeline=(), **changes
    )


@dataclass(frozen=True)
class Cost:
    """What one run took."""

    cpu_seconds: float
    wall_seconds: float
    peak_bytes: int | None  # None: less than this program, which the kernel counts for what it starts
    printed_bytes: int


def cost(command: list[str], environment: dict[str, str]) -> Cost:
    """Run a command and return what it took."""
    with tempfile.TemporaryFile() as printed:
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=printed, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        spent = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        peak = usage.ru_maxrss << 10 if usage.ru_maxrss > own else None
        return Cost(usage.ru_utime + usage.ru_stime, spent, peak, os.fstat(printed.fileno()).st_size)


def compiled(directory: str) -> dict[str, str]:
    """Return the environment of a command that is installed: its code is compiled once, by the run before the first."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": f"{directory}/compiled"}


def main() -> None:
    """Measure and print."""
    arguments = parser(__doc__)
    arguments.add_argument("--days", type=float, default=30)
    arguments.add_argument("--ranks", type=int, default=64, help="of each of 2,000 checkpoints that a page shows")
    arguments.add_argument("--many", type=int, default=100_000, help="checkpoints that a page shows a part of")
    arguments.add_argument("--runs", type=int, default=15)
    arguments.add_argument("--runs-of-many", type=int, default=3)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="ckptprof-bench-") as directory:
        month, ranks, many = (Path(directory) / name for name in ("month.db", "ranks.db", "many.db"))
        count, some = int(options.days * 96), min(2000, options.many)
        history(month, count)
        history(ranks, some, options.ranks, told=True)
        history(many, options.many, 1, told=True)
        few = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "--help": ckptprof("--help"),
            "version": ckptprof("version"),
            f"report of {count} checkpoints": ckptprof("report", "--db", str(month)),
            "report --limit 20": ckptprof("report", "--limit", "20", "--db", str(month)),
            "report --json": ckptprof("report", "--json", "--db", str(month)),
            "list": ckptprof("list", "--db", str(month)),
            "show": ckptprof("show", "1", "--db", str(month)),
            f"report --html of {some} checkpoints of {options.ranks} ranks": page("report", ranks),
            "show --html": page("show", ranks, "1"),
        }
        crowd = {
            f"report of {options.many} checkpoints": ckptprof("report", "--db", str(many)),
            f"report --html of {options.many} checkpoints": page("report", many),
            f"list of {options.many} checkpoints": ckptprof("list", "--db", str(many)),
            f"show, one of {options.many} checkpoints": ckptprof("show", str(options.many), "--db", str(many)),
        }
        environment = compiled(directory)
        costs: dict[str, list[Cost]] = {name: [] for name in few | crowd}
        for commands, runs in ((few, options.runs), (crowd, options.runs_of_many)):
            for number in range(runs + 1):
                for name, command in commands.items():
                    costs[name] += [cost(command, environment)] * bool(number)
    rows: list[dict[str, Any]] = [
        {
            "command": name,
            "cpu_ms": median([one.cpu_seconds for one in runs]) * 1e3,
            "cpu_p90_ms": quantile([one.cpu_seconds for one in runs], 0.9) * 1e3,
            "wall_ms": median([one.wall_seconds for one in runs]) * 1e3,
            "peak_mb": max(one.peak_bytes or 0 for one in runs) / 1e6 or None,
            "printed_kb": max(one.printed_bytes for one in runs) / 1e3,
        }
        for name, runs in costs.items()
    ]
    show("report", rows, as_json=options.json)


def page(command: str, database: Path, *arguments: str) -> list[str]:
    """Return the command that prints a page."""
    return ckptprof(command, *arguments, "--html", "-o", "-", "--db", str(database))


if __name__ == "__main__":
    main()
