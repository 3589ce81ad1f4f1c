"""Runs a job on a ground of its own under ckptprof at both levels, and returns what each reported of it."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fault_grounds import Ground
from recorder import check_job, ckptprof_command
from tests.leftovers import own

WORKER = Path(__file__).with_name("fault_worker.py")
LEVELS = ("trace", "poll")


@dataclass(frozen=True)
class Work:
    """A job on a ground."""

    ground: Ground
    arguments: tuple[str, ...]
    before: tuple[str, ...] | None = None  # a job that is done first, unwatched: it makes what is restored


@dataclass(frozen=True)
class Told:
    """What one level reported of one run: its events of a kind, and what the job itself measured."""

    events: tuple[dict[str, Any], ...]
    logged: tuple[dict[str, Any], ...]  # by the job, of the same kind

    @property
    def limits(self) -> list[str]:
        """Return the limit of each event; `missing` of one without a verdict."""
        return [one["verdict"]["limit"] if one.get("verdict") else "missing" for one in self.events]

    @property
    def seconds(self) -> float:
        """Return the median duration, by the job's own clock."""
        return statistics.median((one["end_ns"] - one["start_ns"]) / 1e9 for one in self.logged)


def run_work(planted: Work, size_mb: int, kind: str = "save", *, saves: int = 1) -> dict[str, Told]:
    """Return what each level reported of one run, as `ckptprof show` has it, of this kind."""
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=own("faults-"))))
        place = stack.enter_context(planted.ground()) / "run"
        place.mkdir()
        truth = work / "truth.jsonl"
        common = ["--dir", str(place), "--truth", str(truth), "--size-mb", str(size_mb), "--saves", str(saves)]
        if planted.before is not None:
            _call([sys.executable, str(WORKER), *common, *planted.before], work)
            truth.unlink()
            _make_cold(place)
            common += ["--saves", planted.before[planted.before.index("--saves") + 1]]
        job = [sys.executable, str(WORKER), *common, *planted.arguments]
        for level in reversed(LEVELS):
            job = [*ckptprof_command(), "run", "--db", str(work / f"{level}.db"), "--level", level, "--", *job]
        _call(job, work)
        logged = [json.loads(line) for line in truth.read_text().splitlines()]
        mine = tuple(one for one in logged if one["kind"] == kind)
        return {level: Told(tuple(_events(work, level, kind)), mine) for level in LEVELS}


def _call(command: list[str], work: Path) -> None:
    done = subprocess.run(command, capture_output=True, check=False, cwd=work)
    check_job(done)


def _events(work: Path, level: str, kind: str) -> Iterator[dict[str, Any]]:
    """Yield what was told of a kind."""
    database = ["--db", str(work / f"{level}.db")]
    listed = subprocess.run([*ckptprof_command(), "report", "--json", *database], capture_output=True, check=False)
    for one in json.loads(listed.stdout or b'{"checkpoints": []}')["checkpoints"]:
        if one["kind"] != kind:
            continue
        shown = subprocess.run(
            [*ckptprof_command(), "show", str(one["id"]), "--json", *database], capture_output=True, check=True
        )
        yield json.loads(shown.stdout)["checkpoint"]


def _make_cold(place: Path) -> None:
    """Take the files out of the page cache."""
    for path in place.rglob("*"):
        if path.is_file():
            with contextlib.closing(os.fdopen(os.open(path, os.O_RDONLY))) as stream:
                os.fsync(stream.fileno())
                os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
