"""What ckptprof reports against the training scripts' own logs: examples/train_*.py in every format, run and agent.

Each job saves, loses its files from the page cache, is started again, restores and saves twice more. An edge is the
start or the end of one event; its error is against the clock of the script around the framework's own call. As root
in a PID namespace, so that the agent does not find the checkpoints of others, which the comparison would call invented.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from agent_cost import isolate
from contenders import ROOT, agent, ckptprof
from figures import median, parser, show

sys.path.insert(0, str(ROOT / "examples"))
from truth import Comparison, compare, read_log

FORMATS = (
    ("numpy", "npz"),
    ("numpy", "npy"),
    ("numpy", "safetensors"),
    ("torch", "torch"),
    ("torch", "dcp"),
    ("torch", "safetensors"),
)


def forget(directory: Path) -> None:
    """Drop the files from the page cache."""
    for path in directory.rglob("*"):
        if path.is_file():
            with path.open("rb") as stream:
                os.fsync(stream.fileno())
                os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def trained(work: Path, framework: str, format_: str, how: str, options: Any) -> Comparison:
    """Run the job twice and compare what was seen with what it logged."""
    database, truth = work / "ckptprof.db", work / "truth.jsonl"
    job = [
        sys.executable,
        str(ROOT / f"examples/train_{framework}.py"),
        "--dir",
        str(work / "job"),
        "--format",
        format_,
    ]
    job += ["--truth", str(truth), "--size-mb", str(options.size_mb), "--interval", str(options.interval)]
    under = ckptprof("run", "--quiet", "--db", str(database), "--") if how == "run" else []

    def both() -> None:
        for more in (["--saves", str(options.saves)], ["--saves", "2", "--resume"]):
            subprocess.run([*under, *job, *more], check=True, stdout=subprocess.DEVNULL, cwd=work)
            forget(work / "job")

    if how == "run":
        both()
    else:
        with agent(database):
            time.sleep(1)
            both()
    done = subprocess.run(
        ckptprof("report", "--json", "--db", str(database)), check=False, capture_output=True, text=True
    )
    seen = json.loads(done.stdout)["checkpoints"] if done.returncode == 0 else []
    return compare(read_log(truth), seen)


def row(framework: str, format_: str, how: str, comparisons: list[Comparison]) -> dict[str, Any]:
    """Return the figures of one format."""
    edges = sorted(error for comparison in comparisons for error in edge_errors_ms(comparison))
    sizes = [comparison.worst_bytes_error_percent for comparison in comparisons if comparison.of("found")]
    counts = {verdict: sum(len(one.of(verdict)) for one in comparisons) for verdict in ("found", "missed", "invented")}
    return {
        "job": f"{framework} {format_}",
        "how": how,
        **counts,
        "bytes_error_percent_max": max((size for size in sizes if size is not None), default=None),
        "edge_ms_median": median(edges) if edges else None,
        "edge_ms_max": edges[-1] if edges else None,
    }


def edge_errors_ms(comparison: Comparison) -> list[float]:
    """Return the errors of all starts and ends of what was found."""
    errors = []
    for one in comparison.of("found"):
        assert one.truth is not None
        assert one.seen is not None
        errors += [
            abs(one.seen["start_ns"] - one.truth.start_ns) / 1e6,
            abs(one.seen["end_ns"] - one.truth.end_ns) / 1e6,
        ]
    return errors


def main() -> None:
    """Measure and print."""
    arguments = parser(__doc__)
    arguments.add_argument("--size-mb", type=float, default=280)
    arguments.add_argument("--interval", type=float, default=1.5)
    arguments.add_argument("--saves", type=int, default=4)
    arguments.add_argument("--repeat", type=int, default=1)
    arguments.add_argument("--frameworks", nargs="*", default=["numpy", "torch"])
    arguments.add_argument("--ways", nargs="*", default=["run", "agent"])
    options = arguments.parse_args()
    isolate()
    rows = []
    for framework, format_ in FORMATS:
        if framework not in options.frameworks or importlib.util.find_spec(framework) is None:
            continue
        for how in options.ways:
            comparisons = []
            for _ in range(options.repeat):
                with tempfile.TemporaryDirectory(prefix="ckptprof-bench-") as directory:
                    comparisons.append(trained(Path(directory), framework, format_, how, options))
            rows.append(row(framework, format_, how, comparisons))
    show("accuracy", rows, as_json=options.json)


if __name__ == "__main__":
    main()
