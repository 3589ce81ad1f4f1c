"""Replays all captures through two source trees, and prints each difference in what they tell.

    python tests/recording/shadow.py OLD [NEW] [--only PATTERN]

OLD and NEW are revisions of git or folders; NEW is the working tree unless given. Exits with 1 if anything differs.
The last line names the captures in which a checkpoint differs. In the others only the evidence differs, or what is no
checkpoint: often nothing but a sum.
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
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from told import captures  # noqa: E402 - found by the line above

ROOT = HERE.parents[1]
MAX_LINES = 80  # of one capture's difference in what no golden file holds


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


def main(old: str, new: str, pattern: str) -> int:
    """Compare; return the exit code."""
    names = fnmatch.filter(captures(), pattern)
    with tree(old) as before, tree(new) as after, ThreadPoolExecutor(2) as pool:
        left, right = pool.map(lambda place: replayed(place, names), (before, after))
    different, otherwise = 0, []
    for name in names:
        if lines := difference(name, left[name], right[name]):
            different += 1
            if reported(left[name][0]) != reported(right[name][0]):
                otherwise.append(name)
            print("\n".join(lines))  # noqa: T201 - a tool
    print(f"{different} of {len(names)} captures differ between {old} and {new}")  # noqa: T201
    if different:
        print(f"{len(otherwise)} of these in a checkpoint: {' '.join(otherwise) or 'none'}")  # noqa: T201
    return 1 if different else 0


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("old", metavar="OLD")
    arguments.add_argument("new", metavar="NEW", nargs="?", default=str(ROOT))
    arguments.add_argument("--only", metavar="PATTERN", default="*", help="captures with names like this")
    options = arguments.parse_args()
    raise SystemExit(main(options.old, options.new, options.only))
