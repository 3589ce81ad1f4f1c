"""Replays all captures through two source trees, and prints each difference in what they tell.

    python tests/recording/shadow.py OLD [NEW] [--only PATTERN]

OLD and NEW are revisions of git or folders; NEW is the working tree unless given. Exits with 1 if anything differs.
The last lines count the checkpoints that differ, by column, and name their captures. In the others only the evidence
differs, or what is no checkpoint: often nothing but a sum.
The trees may keep their modules in different places: all that is asked of them is in told.py.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import fnmatch
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from told import captures  # noqa: E402 - found by the line above

ROOT = HERE.parents[1]
MAX_LINES = 80  # of one capture's difference in what no golden file holds
# What one asks first of a difference; `event`: a checkpoint that only one of the trees reports
COLUMNS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "kind": lambda one: one["kind"],
    "edges": lambda one: (one["start_ns"], one["end_ns"]),
    "class": lambda one: one["pattern"].get("class"),
    "limit": lambda one: one.get("verdict", {}).get("limit"),
    "cause": lambda one: one.get("verdict", {}).get("cause"),
    "mode": lambda one: one.get("mode"),
    "stall": lambda one: one.get("stall_ns"),
    "bytes": lambda one: one["bytes"],
}


@contextlib.contextmanager
def tree(wanted: str) -> Iterator[Path]:
    """Give a folder with these sources: the folder itself, or what git has of that revision."""
    if Path(wanted).is_dir():
        yield Path(wanted).resolve()
        return
    git = ["git", "-C", str(ROOT), "archive", wanted, "agent", "collectors"]
    packed = subprocess.run(git, check=True, stdout=subprocess.PIPE).stdout
    with tempfile.TemporaryDirectory(prefix="shadow-") as folder:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(folder)  # noqa: S202 - git made it of our own sources
        yield Path(folder)


def replayed(place: Path, names: list[str]) -> dict[str, tuple[str, str]]:
    """Return what a tree tells of each capture: its golden text, and everything."""
    environment = {**os.environ, "PYTHONPATH": f"{place}/agent{os.pathsep}{place}/collectors"}
    command = [sys.executable, str(HERE / "told.py"), str(place), *names]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout.splitlines()
    return {name: (text, rest) for name, text, rest in map(json.loads, lines)}


def difference(name: str, old: tuple[str, str], new: tuple[str, str]) -> list[str]:
    """Return the difference of the golden texts or, where they are one, of everything else."""
    for suffix, before, after, limit in (("", old[0], new[0], None), (" (all)", old[1], new[1], MAX_LINES)):
        lines = difflib.unified_diff(
            before.splitlines(), after.splitlines(), f"old/{name}{suffix}", f"new/{name}{suffix}", "", "", 2, ""
        )
        if shown := list(lines)[:limit]:
            return shown
    return []


def reported(text: str) -> list[str]:
    """Return a golden text without what is no checkpoint."""
    return [line for line in text.splitlines() if not line.startswith("no checkpoint")]


def columns(old: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]]) -> Counter[str]:
    """Return in how many checkpoints of one capture each column differs; `other`: something else alone."""
    found: Counter[str] = Counter()
    left = list(new)
    for one in old:
        same = [other for other in left if _is_same(one, other)]
        if not same:
            found["event"] += 1
            continue
        other = min(same, key=lambda other: (other["kind"] != one["kind"], abs(other["start_ns"] - one["start_ns"])))
        left.remove(other)
        differs = [name for name, of in COLUMNS.items() if of(one) != of(other)]
        found.update(differs or ["other"] * (one != other))
    found["event"] += len(left)
    return found


def _is_same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether two trees speak of one event: it has the same kind and place, or the same time and place."""
    overlaps = one["start_ns"] <= other["end_ns"] and other["start_ns"] <= one["end_ns"]
    return (one.get("path") == other.get("path") and one["kind"] == other["kind"]) or overlaps


def summary(found: Counter[str]) -> str:
    """Return the counts of all columns on one line, none left out: 0 limits is an answer."""
    return ", ".join(f"{found[name]} {name}" for name in ("event", *COLUMNS, "other"))


def main(old: str, new: str, pattern: str) -> int:
    """Compare; return the exit code."""
    names = fnmatch.filter(captures(), pattern)
    with tree(old) as before, tree(new) as after, ThreadPoolExecutor(2) as pool:
        left, right = pool.map(lambda place: replayed(place, names), (before, after))
    different, otherwise, found = 0, [], Counter[str]()
    for name in names:
        if lines := difference(name, left[name], right[name]):
            different += 1
            found += columns(*(json.loads(side[name][1])["checkpoints"] for side in (left, right)))
            if reported(left[name][0]) != reported(right[name][0]):
                otherwise.append(name)
            print("\n".join(lines))  # noqa: T201 - a tool
    print(f"{different} of {len(names)} captures differ between {old} and {new}")  # noqa: T201
    if different:
        print(f"checkpoints that differ, by column: {summary(found)}")  # noqa: T201
        print(f"{len(otherwise)} of these in a checkpoint: {' '.join(otherwise) or 'none'}")  # noqa: T201
    return 1 if different else 0


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("old", metavar="OLD")
    arguments.add_argument("new", metavar="NEW", nargs="?", default=str(ROOT))
    arguments.add_argument("--only", metavar="PATTERN", default="*", help="captures with names like this")
    options = arguments.parse_args()
    raise SystemExit(main(options.old, options.new, options.only))
