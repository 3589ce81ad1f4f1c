"""What every benchmark prints: a table for people, or one JSON document."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Rows = Sequence[Mapping[str, Any]]


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that every benchmark has."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--json", action="store_true", help="print one JSON document")
    return made


def median(values: Sequence[float]) -> float:
    """Return the median; raises StatisticsError without values."""
    return statistics.median(values)


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def machine() -> dict[str, Any]:
    """Return what the figures were measured on."""
    memory = int(Path("/proc/meminfo").read_text().split()[1]) >> 20
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "cpus": os.cpu_count(),
        "cpu": models[0].partition(": ")[2] if models else platform.machine(),
        "memory_gib": memory,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
    }


def show(benchmark: str, rows: Rows, *, as_json: bool, notes: Sequence[str] = ()) -> None:
    """Print the rows of a benchmark, which all have the same keys."""
    if as_json:
        print(json.dumps({"benchmark": benchmark, "machine": machine(), "rows": list(rows), "notes": list(notes)}))
        return
    print(f"\n{benchmark}")
    if rows:
        names = list(rows[0])
        cells = [names, *([_cell(row[name]) for name in names] for row in rows)]
        widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
        for line in cells:
            left, *right = (cell.rjust(width) for cell, width in zip(line, widths, strict=True))
            print("  ".join([left.strip().ljust(widths[0]), *right]).rstrip())
    for note in notes:
        print(f"  {note}")


def markdown(rows: Rows) -> str:
    """Return the rows, which all have the same keys, as a table of docs/benchmarks.md."""
    heads = list(rows[0]) if rows else []
    lines = [heads, ["---"] * len(heads), *([_cell(row[head]) for head in heads] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return str(value)
