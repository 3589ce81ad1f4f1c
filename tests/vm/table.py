"""Write what `make vm` left in .build/vm into the table of docs/storage.md, each storage and fault by kernel.

Rows of which nothing is there stay as they are.
"""

from __future__ import annotations

import json

from scenarios import SCENARIOS

from machine import KERNELS, PROCESSORS, ROOT, Machine

PAGE = ROOT / "docs" / "storage.md"
BEGIN, END = "<!-- made by tests/vm/table.py -->\n", "<!-- end -->\n"


HEAD = """\
| storage | planted fault | kernel | found at trace | polled | limit of its saves at trace |
|---|---|---|---|---|---|
"""
MACHINES = [
    Machine(kernel if processor == "amd64" else f"{kernel}-{processor}")
    for processor in PROCESSORS
    for kernel in KERNELS
]


def key(machine: Machine, name: str) -> str:
    """Return how the row of a scenario begins."""
    scenario = SCENARIOS[name]
    processor = "" if machine.architecture == "amd64" else f", {machine.architecture}"
    return f"| {scenario.storage} | {scenario.fault or '-'} | {machine.kernel}{processor} |"


def values(machine: Machine, name: str) -> str:
    """Return how it goes on: found of the true events at each level, and the limits of the saves at trace."""
    folder = machine.folder / "captures"
    found = json.loads((folder / f"{name}.json").read_text())
    truth = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
    true = {(event["kind"], event["path"]) for event in truth}
    counts = []
    for level in ("trace", "poll"):
        if level not in found:
            counts.append("not recorded")
            continue
        right = [one for one in found[level] if (one["kind"], one["path"]) in true]
        wrong = len(found[level]) - len(right)
        counts.append(f"{len(right)} of {len(truth)}" + (f", {wrong} wrong" if wrong else ""))
    saves = [one for one in found["trace"] if one["kind"] == "save"]
    limits = [saves[number]["verdict"]["limit"] for number in sorted(SCENARIOS[name].hit) if number < len(saves)]
    return f"{counts[0]} | {counts[1]} | {', '.join(sorted(set(limits)))}"


def main() -> None:
    """Replace the rows of the page."""
    page = PAGE.read_text(encoding="utf-8")
    before, after = page[: page.index(BEGIN) + len(BEGIN)], page[page.index(END) :]
    old = page[len(before) : page.index(END)].splitlines(keepends=True)
    rows = []
    for machine in MACHINES:
        for name in SCENARIOS:
            if (machine.folder / "captures" / f"{name}.json").exists():
                rows.append(f"{key(machine, name)} {values(machine, name)} |\n")
            else:
                rows += [line for line in old if line.startswith(key(machine, name))]
    PAGE.write_text(f"{before}{HEAD}{''.join(rows)}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
