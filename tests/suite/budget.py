"""Compares the lines of each package with its figure in pyproject.toml ([tool.ckptprof.lines]): they may only fall.

    python tests/suite/budget.py [--lower] [ROOT]

A file counts for the longest path of the table that it lies under. `--lower` writes the figures that are reached.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

SUFFIXES = (".py", ".sql", ".js", ".css", ".html", ".j2")
PRODUCT = ("agent", "collectors", "dashboards", "deploy")
TABLE = r"(?<=\[tool\.ckptprof\.{}\]).*?(?=^\[|\Z)"
LINES = re.compile(TABLE.format("lines"), re.MULTILINE | re.DOTALL)
FIGURE = re.compile(r'^"([^"]+)" = ([\d_]+)', re.MULTILINE)


def figures_of(text: str, table: str = "lines") -> dict[str, int]:
    """Return the figures of a table of pyproject.toml: of each package by its path."""
    found = re.search(TABLE.format(table), text, re.MULTILINE | re.DOTALL)
    return {} if found is None else {path: int(figure) for path, figure in FIGURE.findall(found[0])}


def count(root: Path, packages: list[str]) -> Counter[str]:
    """Return the lines of each package: of files that git knows, and of new ones that it does not ignore."""
    git = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(git, check=True, stdout=subprocess.PIPE, text=True).stdout.split("\0")
    lines = Counter(dict.fromkeys(packages, 0))
    for name in set(listed):
        under = [package for package in packages if name.startswith(f"{package}/")]
        if under and name.endswith(SUFFIXES) and (root / name).is_file():
            lines[max(under, key=len)] += (root / name).read_bytes().count(b"\n")
    return lines


def lowered(text: str, lines: Counter[str]) -> str:
    """Return pyproject.toml with each figure that is higher than the lines replaced by them."""
    return LINES.sub(
        lambda found: FIGURE.sub(lambda row: f'"{row[1]}" = {min(int(row[2]), lines[row[1]])}', found[0]), text, count=1
    )


def main(root: Path, *, lower: bool) -> int:
    """Print what is over, or what is left; return the exit code."""
    settings = root / "pyproject.toml"
    text = settings.read_text(encoding="utf-8")
    figures = figures_of(text)
    lines = count(root, list(figures))
    if lower:
        settings.write_text(lowered(text, lines), encoding="utf-8")
        figures = figures_of(lowered(text, lines))
    over = {package: lines[package] - figure for package, figure in figures.items() if lines[package] > figure}
    for package, more in over.items():
        print(  # noqa: T201 - a tool
            f"{package}: {lines[package]} lines, {more} over its figure of {figures[package]} in pyproject.toml: "
            "remove as many there, or raise the figure in a commit of its own that gives the reason"
        )
    slack = {package: figure - lines[package] for package, figure in figures.items() if figure > lines[package]}
    product = sum(number for package, number in lines.items() if package.partition("/")[0] in PRODUCT)
    left = ", ".join(f"{package} {number}" for package, number in slack.items())
    below = f"; below the figures, which `make budget` lowers: {left}" if left else ""
    print(f"{product} lines of product, {sum(lines.values()) - product} of others{below}")  # noqa: T201
    return 1 if over or not figures else 0


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("root", metavar="ROOT", nargs="?", type=Path, default=Path(__file__).resolve().parents[2])
    arguments.add_argument("--lower", action="store_true", help="write the figures that are reached")
    options = arguments.parse_args()
    sys.exit(main(options.root, lower=options.lower))
