"""What each habit needs: where it works, and what it logs of itself.

A line of the log is that of rounds.py, with more that is known: `blocked_seconds`, `limits` (any of them is right; if
none, it is not judged), `mode`, `status`, `optional` (both answers are right), `risks` (somebody should be told).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

LIMITS = {  # what may be said of a save or restore that spent most of its time on this
    "serialize": ("serialize",),
    "write": ("none", "page-cache", "device"),
    "sync": ("none", "flush", "device"),
    "read": ("none", "page-cache", "device"),
    "wait": ("previous-save",),
}
_MOST = 0.6  # of the blocked time is what limited it
_CROWDED = 0.25  # of it ready to run, beside others on the same CPUs: that is a limit, too
_LEAST_SECONDS = 0.2  # nobody needs to know what limited less


def _waited_seconds() -> float:
    """Return for how long this thread was ready to run, and did not."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9


class Row:
    """One save or restore while it happens."""

    def __init__(self) -> None:
        """Begin now."""
        self.start_ns = time.time_ns()
        self.blocked_until_ns: int | None = None
        self.known: dict[str, object] = {}
        self.parts: defaultdict[str, float] = defaultdict(float)
        self._began_waiting = _waited_seconds()

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count what happens inside to a part of its time, one of LIMITS."""
        start = time.monotonic()
        yield
        self.parts[name] += time.monotonic() - start

    def goes_on(self) -> None:
        """Note that training goes on from here, before all is written."""
        self.blocked_until_ns = time.time_ns()

    def limits(self, seconds: float) -> tuple[str, ...]:
        """Return the limits that are right, if one part was most of these seconds."""
        most = [name for name, spent in self.parts.items() if spent >= _MOST * seconds]
        if not most or seconds < _LEAST_SECONDS:
            return ()
        crowded = _waited_seconds() - self._began_waiting >= _CROWDED * seconds
        return (*LIMITS[most[0]], *(("cpu",) if crowded else ()))


class Life:
    """The command line and the log of a habit."""

    def __init__(self, description: str | None) -> None:
        """Read the command line."""
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("--dir", type=Path, required=True)
        parser.add_argument("--truth", type=Path, required=True)
        parser.add_argument("--prepare", action="store_true", help="make what it finds, and nothing else")
        parser.add_argument("--again", action="store_true", help="be the restart")
        parser.add_argument("--minutes", type=float, default=2.0, help="how long to train, if it asks")
        options = parser.parse_args()
        self.folder: Path = options.dir
        self.truth: Path = options.truth
        self.prepare: bool = options.prepare
        self.again: bool = options.again
        self.minutes: float = options.minutes
        self.folder.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def save(self, *paths: Path, **known: object) -> Iterator[Row]:
        """Log what happens inside as a save of these files or folders."""
        row = Row()
        yield row
        self.log("save", row, paths, known)

    @contextlib.contextmanager
    def restore(self, *paths: Path, **known: object) -> Iterator[Row]:
        """Log what happens inside as a restore of these."""
        row = Row()
        yield row
        self.log("restore", row, paths, known)

    def log(self, kind: str, row: Row, paths: tuple[Path, ...], known: dict[str, object]) -> None:
        """Write its line, at its end."""
        end_ns = time.time_ns()
        blocked = ((row.blocked_until_ns or end_ns) - row.start_ns) / 1e9
        line = {"kind": kind, "step": None, "path": os.path.commonpath(paths), "bytes": sum(map(size, paths))}
        line |= {"start_ns": row.start_ns, "end_ns": end_ns, "blocked_seconds": blocked, "parts": dict(row.parts)}
        line |= {"status": "complete", "optional": False}
        if kind == "save":
            line["mode"] = "sync" if row.blocked_until_ns is None else "async"
        if limits := row.limits(blocked):
            line["limits"] = limits
        line |= row.known | known
        with self.truth.open("a") as truth:
            truth.write(json.dumps(line) + "\n")

    def start_again(self) -> None:
        """Run the restart, as a launcher does, and wait for it."""
        subprocess.run([sys.executable, *sys.argv, "--again"], check=True)


def size(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder, each once."""
    found = (one.stat() for one in (path.rglob("*") if path.is_dir() else [path] if path.exists() else []))
    return sum({one.st_ino: one.st_size for one in found if one.st_mode & 0o100000}.values())


def until(seconds: float, step: Callable[[], object]) -> None:
    """Take steps for so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        step()
