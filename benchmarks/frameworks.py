"""Which framework ckptprof tells each save and restore from, of real jobs with real libraries (tests/e2e/jobs).

Each job saves three times, loses its files from the page cache, is started again and restores. `--markdown` prints the
tables of docs/benchmarks.md: figures per job, then the confusion matrix of each level. A framework is right if it is
the one that the job itself logs; edges and bytes are held against the job's own clock and files.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contenders import ROOT
from figures import markdown, median, parser, show

sys.path.insert(0, str(ROOT / "tests/e2e"))
sys.path.insert(0, str(ROOT / "examples"))
from framework_jobs import JOBS, Job, edge_errors_ms, run_job, wrong
from recorder import Recorder

from truth import Comparison

WORDS = ("framework", "step", "ranks", "mode", "status")


def row(job: Job, level: str, comparison: Comparison) -> dict[str, Any]:
    """Return the figures of one job at one level."""
    edges = edge_errors_ms(comparison.rows)
    mistakes = Counter(word for one in comparison.of("found") for word in WORDS if wrong(one, [word]))
    return {
        "job": job.name,
        "level": level,
        **{verdict: len(comparison.of(verdict)) for verdict in ("found", "missed", "invented")},
        **{f"wrong_{word}": mistakes[word] for word in WORDS},
        "edge_ms_median": median(edges) if edges else None,
        "edge_ms_max": max(edges, default=None),
        "bytes_error_percent_max": comparison.worst_bytes_error_percent,
    }


def confusion(comparisons: Sequence[Comparison]) -> Counter[tuple[str, str]]:
    """Count events by the framework that the job logs and the one that was told; `none` is nobody."""
    pairs = ((one.truth, one.seen) for comparison in comparisons for one in comparison.rows)
    return Counter(
        (str(truth.framework) if truth else "none", str(seen["framework"]) if seen else "none") for truth, seen in pairs
    )


def summary(level: str, rows: Sequence[dict[str, Any]], comparisons: Sequence[Comparison]) -> str:
    """Return one line: recall, precision, edges and names over all jobs of a level."""
    found, missed, invented = (
        sum(one[verdict] for one in rows if one["level"] == level) for verdict in ("found", "missed", "invented")
    )
    edges = [error for comparison in comparisons for error in edge_errors_ms(comparison.rows)]
    right = {word: found - sum(one[f"wrong_{word}"] for one in rows if one["level"] == level) for word in WORDS}
    names = ", ".join(f"{word} {count}/{found}" for word, count in right.items())
    return f"{level}: recall {found}/{found + missed}, precision {found}/{found + invented}, right {names}" + (
        f", edges {median(edges):.0f} ms (median), {max(edges):.0f} ms (worst)" if edges else ""
    )


def matrix(counts: Counter[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return the confusion matrix: logged by the job down, told by ckptprof across."""
    logged, told = (sorted({pair[at] for pair in counts}) for at in (0, 1))
    return [{"logged by the job": name, **{other: counts[name, other] or "" for other in told}} for name in logged]


def measure(job: Job, level: str, saves: int) -> Comparison:
    """Run one job in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="ckptprof-bench-") as directory:
        recorder = Recorder(Path(directory), level=level)
        return run_job(recorder, job, saves=saves)[0]


def main() -> None:
    """Measure and print."""
    arguments = parser(__doc__)
    arguments.add_argument("--markdown", action="store_true", help="print the tables of docs/benchmarks.md")
    arguments.add_argument("--level", nargs="*", choices=("trace", "poll"), default=["trace", "poll"])
    arguments.add_argument("--jobs", nargs="*", default=[""], help="beginnings of names of jobs")
    arguments.add_argument("--saves", type=int, default=3)
    options = arguments.parse_args()
    chosen = [job for job in JOBS if job.name.startswith(tuple(options.jobs))]
    rows: list[dict[str, Any]] = []
    seen: dict[str, list[Comparison]] = {level: [] for level in options.level}
    for job in chosen:
        for level in options.level:
            print(f"{job.name} {level} ...", file=sys.stderr, flush=True)
            comparison = measure(job, level, options.saves)
            seen[level].append(comparison)
            rows.append(row(job, level, comparison))
    notes = [summary(level, rows, comparisons) for level, comparisons in seen.items()]
    if not options.markdown:
        show("frameworks", rows, as_json=options.json, notes=notes)
        return
    print(markdown(rows), *notes, sep="\n\n")
    for level, comparisons in seen.items():
        print(f"\n{level}\n\n{markdown(matrix(confusion(comparisons)))}")


if __name__ == "__main__":
    main()
