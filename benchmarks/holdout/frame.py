"""The frame of every job of the hold-out: its command line, its log, its ranks, how long it computes, how it writes.

A line of the log is {"kind", "step", "start_ns", "end_ns", "bytes"}; `kind` is save, restore or none, and `bytes` is
what the checkpoint has on disk. Jobs that know more of themselves log `blocked_seconds`, `mode`, `status`, `limits`
(any of them is right; if none, it is not judged), `optional` (both answers are right) and `risks`, too; of the others
the catalogue knows it.
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
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

MB = 1 << 20
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


def options(**defaults: object) -> argparse.Namespace:
    """Return the command line that all jobs have."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--way", required=True, help="which job of the file")
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--truth", type=Path, required=True)
    parser.add_argument("--prepare", action="store_true", help="make what it finds, and nothing else")
    parser.add_argument("--again", action="store_true", help="be the restart")
    parser.add_argument("--minutes", type=float, default=2.0, help="how long to train, if it asks")
    parser.add_argument("--size-mb", type=int, default=96)
    parser.add_argument("--layout", default="folder")
    parser.add_argument("--pace", default="compute")
    parser.add_argument("--seconds", type=float, default=3.0, help="of training between two saves or restores")
    parser.add_argument("--remedy", help="the way of each second save or restore")
    parser.add_argument("--beside", help="what it does between two of them, which is neither")
    parser.set_defaults(**defaults)
    return parser.parse_args()


def run(jobs: Mapping[str, object]) -> None:
    """Be the job of a file that the command line names; raises KeyError if there is none."""
    chosen = options()
    job = jobs[chosen.way.replace("-", "_")]
    assert callable(job)
    job(Life(chosen))


class Row:
    """One save or restore while it happens."""

    def __init__(self) -> None:
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


def _waited_seconds() -> float:
    """Return for how long this thread was ready to run, and did not."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9


class Life:
    """One life of a job, and its log, which is that of rank 0."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self.options = chosen
        self.folder: Path = chosen.dir
        self.prepare: bool = chosen.prepare
        self.again: bool = chosen.again
        self.rank, self.ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        self.folder.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def save(self, *paths: Path, kind: str = "save", part: str | None = None, **known: object) -> Iterator[Row]:
        """Log what happens inside as a save of these files or folders; `part`: all of it is this part."""
        row = Row()
        with row.part(part) if part else contextlib.nullcontext():
            yield row
        self.log(kind, row, paths, known)

    def restore(self, *paths: Path, part: str | None = None, **known: object) -> contextlib.AbstractContextManager[Row]:
        """Log what happens inside as a restore of these."""
        return self.save(*paths, kind="restore", part=part, **known)

    def log(self, kind: str, row: Row, paths: tuple[Path, ...], known: dict[str, object]) -> None:
        """Write its line, at its end."""
        if self.rank:
            return
        end_ns = time.time_ns()
        blocked = ((row.blocked_until_ns or end_ns) - row.start_ns) / 1e9
        line = {"kind": kind, "step": None, "path": os.path.commonpath(paths), "bytes": sum(map(size, paths))}
        line |= {"start_ns": row.start_ns, "end_ns": end_ns, "blocked_seconds": blocked, "parts": dict(row.parts)}
        line |= {"status": "complete", "optional": False}
        if kind == "save":
            line["mode"] = "sync" if row.blocked_until_ns is None else "async"
        if limits := row.limits(blocked):
            line["limits"] = limits
        self.write(line | row.known | known)

    def write(self, line: Mapping[str, object]) -> None:
        """Add a line to the log."""
        with self.options.truth.open("a") as truth:
            truth.write(json.dumps(line) + "\n")

    def nothing(self) -> None:
        """Log that it has run to its end; for a job that saves nothing."""
        if not self.rank:
            self.write({"kind": "none"})

    def start_again(self, *, check: bool = True, **environment: str) -> None:
        """Run the restart, as a launcher does, and wait for it."""
        subprocess.run([sys.executable, *sys.argv, "--again"], check=check, env={**os.environ, **environment})

    def end(self, seconds: float, step: Callable[[], object]) -> None:
        """Train for so long; then be restarted, if this is the first life."""
        until(seconds, step)
        if not self.again:
            self.start_again()


def size(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder, each once."""
    found = (one.stat() for one in (path.rglob("*") if path.is_dir() else [path] if path.exists() else []))
    return sum({one.st_ino: one.st_size for one in found if one.st_mode & 0o100000}.values())


def until(seconds: float, step: Callable[[], object]) -> None:
    """Take steps for so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        step()


def numbered(folder: Path, pattern: str) -> list[Path]:
    """Return what matches in the order of the number that ends each name."""
    return sorted(folder.glob(pattern), key=lambda path: int("".join(filter(str.isdigit, path.stem))))


def chunks(blob: bytes | memoryview, length: int = 4 * MB) -> Iterator[memoryview]:
    """Yield pieces of one size."""
    view = memoryview(blob)
    for start in range(0, len(view), length):
        yield view[start : start + length]


def write(path: Path, *blobs: bytes | memoryview) -> None:
    """Write them by calls of 4 MiB."""
    with path.open("wb", buffering=0) as stream:
        for blob in blobs:
            for chunk in chunks(blob):
                stream.write(chunk)


def sync(path: Path) -> None:
    """Put a file, or the names in a folder, on stable storage."""
    opened = os.open(path, os.O_RDONLY)
    os.fsync(opened)
    os.close(opened)


def forget(path: Path) -> None:
    """Put a file on stable storage, and take it out of memory."""
    sync(path)
    opened = os.open(path, os.O_RDONLY)
    os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(opened)
