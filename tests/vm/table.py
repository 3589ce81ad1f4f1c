"""Write the table of docs/storage.md from what `make vm` left in .build/vm: each storage and fault by kernel."""

from __future__ import annotations

import json
from pathlib import Path

from scenarios import SCENARIOS

from machine import KERNELS, ROOT, Machine

PAGE = ROOT / "docs" / "storage.md"
BEGIN, END = "<!-- made by tests/vm/table.py -->\n", "<!-- end -->\n"


def row(kernel: str, name: str, folder: Path) -> str:
    """Return one row: found of the true events at each level, and the limits of the saves at trace."""
    found = json.loads((folder / f"{name}.json").read_text())
    truth = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
    true = {(event["kind"], event["path"]) for event in truth}
    counts = []
    for level in ("trace", "poll"):
        right = [one for one in found[level] if (one["kind"], one["path"]) in true]
        wrong = len(found[level]) - len(right)
        counts.append(f"{len(right)} of {len(truth)}" + (f", {wrong} wrong" if wrong else ""))
    limits = sorted({one["verdict"]["limit"] for one in found["trace"] if one["kind"] == "save"})
    scenario = SCENARIOS[name]
    cells = (scenario.storage, scenario.fault or "-", kernel, *counts, ", ".join(limits))
    return f"| {' | '.join(cells)} |\n"


def main() -> None:
    """Replace the rows of the page."""
    rows = [
        row(kernel, name, folder)
        for kernel in KERNELS
        if (folder := Machine(kernel).folder / "captures").is_dir()
        for name in SCENARIOS
        if (folder / f"{name}.json").exists()
    ]
    head = "| storage | planted fault | kernel | found at trace | polled | limit of its saves at trace |\n"
    page = PAGE.read_text(encoding="utf-8")
    before, after = page[: page.index(BEGIN) + len(BEGIN)], page[page.index(END) :]
    PAGE.write_text(f"{before}{head}|---|---|---|---|---|---|\n{''.join(rows)}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
