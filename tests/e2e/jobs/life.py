"""What the jobs of the end-to-end tests share: their options, their log of the truth, and a model that learns.

The edges that a job logs are those of ckptprof: from the first file that is made to the last write, sync, rename or
close. So a job times the framework's own call that does this and nothing else; where the call does more, it says so.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3] / "examples"))

from truth import Event, TruthLog, size_of

BYTES_PER_PARAMETER = 12  # float32, and Adam's two moments


@dataclass(frozen=True)
class Options:
    """What a job is told on its command line."""

    dir: Path
    truth: Path
    variant: str
    saves: int
    steps: int  # between two saves, at least
    interval: float  # seconds between two saves, at least
    size_mb: float
    resume: bool


def options(*variants: str) -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--truth", type=Path, required=True)
    parser.add_argument("--variant", choices=variants or ("",), default=(variants or ("",))[0])
    parser.add_argument("--saves", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--interval", type=float, default=1.2)
    parser.add_argument("--size-mb", type=float, default=120)
    parser.add_argument("--resume", action="store_true")
    told = Options(**vars(parser.parse_args()))
    told.dir.mkdir(parents=True, exist_ok=True)
    return told


@dataclass(frozen=True)
class Logbook:
    """Logs the events of one framework."""

    told: Options
    framework: str
    ranks: int = 1
    mode: str = "sync"
    silent: bool = False  # another rank of the job logs

    @contextmanager
    def timed(self, kind: str, step: int, path: Path, size: Callable[[], int] | None = None) -> Iterator[None]:
        """Log the block as one synchronous event of the file or the folder; `size`: of its bytes, if not of it all."""
        start_ns = time.time_ns()
        yield
        self.add(kind, step, path, start_ns, time.time_ns(), size=size)

    def add(
        self,
        kind: str,
        step: int,
        path: Path,
        start_ns: int,
        end_ns: int,
        *,
        size: Callable[[], int] | None = None,
        stall_ns: int | None = None,
    ) -> None:
        """Log an event that was timed elsewhere."""
        if self.silent:
            return
        mode = self.mode if kind == "save" else None
        event = Event(
            kind=kind,
            step=step,
            start_ns=start_ns,
            end_ns=end_ns,
            bytes=size() if size is not None else size_of(path),
            path=str(path),
            format=self.told.variant,
            framework=self.framework,
            ranks=self.ranks,
            mode=mode,
            stall_ns=stall_ns if stall_ns is not None or mode != "sync" else end_ns - start_ns,
        )
        TruthLog(self.told.truth).add(event)


def asked_bytes() -> int:
    """Return what this process has read so far by the kernel's own account, wherever it came from."""
    return int(Path("/proc/self/io").read_text(encoding="ascii").split()[1])  # rchar


def train(learn: Callable[[], object], told: Options) -> int:
    """Train for so many steps and so many seconds, whichever is longer; return the number of steps taken."""
    done, start = 0, time.monotonic()
    while done < told.steps or time.monotonic() < start + told.interval:
        learn()
        done += 1
    return done


def width(size_mb: float) -> int:
    """Return the width of two square layers whose parameters and moments have about so many megabytes."""
    return max(16, int((size_mb * 1e6 / BYTES_PER_PARAMETER / 2) ** 0.5))
