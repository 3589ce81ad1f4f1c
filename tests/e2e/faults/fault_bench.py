"""Runs a planted fault and its control under ckptprof, and holds the verdicts against what was planted."""

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
from functools import partial
from pathlib import Path
from typing import Any

from fault_cases import Case, Work
from recorder import check_job, ckptprof_command
from tests.leftovers import own

WORKER = Path(__file__).with_name("fault_worker.py")
LEVELS = ("trace", "poll")
_SHORT_SECONDS = 0.25  # a promise is not held to less: nobody waits for it


@dataclass(frozen=True)
class Told:
    """What one level said of one run: its events of the case's kind, and what the job itself measured."""

    events: tuple[dict[str, Any], ...]
    logged: tuple[dict[str, Any], ...]  # by the job, of the same kind

    @property
    def truth_seconds(self) -> tuple[float, ...]:
        """Return how long each took, by the job's own clock."""
        return tuple((one["end_ns"] - one["start_ns"]) / 1e9 for one in self.logged)

    @property
    def limits(self) -> list[str]:
        """Return the limit of each event; `missing` of one without a verdict."""
        return [one["verdict"]["limit"] if one.get("verdict") else "missing" for one in self.events]

    @property
    def seconds(self) -> float:
        """Return the median duration, by the job's own clock."""
        return statistics.median(self.truth_seconds)

    @property
    def expected_seconds(self) -> float | None:
        """Return the median of the durations that the verdicts promise."""
        known = [one["verdict"].get("expected_seconds") for one in self.events if one.get("verdict")]
        found = [one for one in known if one is not None]
        return statistics.median(found) if found else None


@dataclass(frozen=True)
class Outcome:
    """A fault and its control at one level and size."""

    case: Case
    size_mb: int
    level: str
    fault: Told
    control: Told

    @property
    def right(self) -> int:
        """Return how many verdicts name what was planted."""
        return sum(limit in self.case.limits for limit in self.fault.limits)

    @property
    def control_right(self) -> int:
        """Return how many verdicts of the control name nothing that was not there."""
        return sum(limit in self.case.control_limits for limit in self.control.limits)

    @property
    def gain_error(self) -> float | None:
        """Return the promised duration over the one without the fault, less 1; None if nothing is promised."""
        promised = self.fault.expected_seconds
        if not self.case.gain or promised is None:
            return None
        if max(promised, self.control.seconds) < _SHORT_SECONDS:
            return 0.0
        return promised / self.control.seconds - 1


def run_case(case: Case, size_mb: int, *, saves: int = 3, probed: bool = True, whole: bool = False) -> list[Outcome]:
    """Plant it, run it, take it away, run the control; both levels look at the same runs.

    `whole`: each event comes with what was measured, which `ckptprof show` tells of one at a time.
    Where a promise is held to the control, `ckptprof ceiling` has probed the directory before the fault was planted.
    """
    fault, control = (
        run_work(one, size_mb, case.kind, saves=saves, skip=case.skip, probed=probed and case.gain, whole=whole)
        for one in (case.fault, case.control)
    )
    return [Outcome(case, size_mb, level, fault[level], control[level]) for level in LEVELS]


def run_work(
    planted: Work,
    size_mb: int,
    kind: str = "save",
    *,
    saves: int = 3,
    skip: int = 0,
    probed: bool = False,
    whole: bool = True,
) -> dict[str, Told]:
    """Return what each level tells of one run, but for the first events of this kind, of which `skip` are left out."""
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=own("faults-"))))
        probe = partial(_probe, work / "trace.db") if probed else _leave
        place = stack.enter_context(planted.ground(healthy=probe)) / "run"
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
        mine = tuple(one for one in logged if one["kind"] == kind)[skip:]
        return {level: Told(tuple(_events(work, level, kind, whole=whole))[skip:], mine) for level in LEVELS}


def _leave(_: Path) -> None:
    """Do not probe."""


def _probe(database: Path, place: Path) -> None:
    """Have the ceilings of a directory kept beside a database."""
    bounds = ("--yes", "--size", "256M", "--seconds", "0.4")
    _call([*ckptprof_command(), "ceiling", str(place), "--db", str(database), *bounds], database.parent)


def _call(command: list[str], work: Path) -> None:
    done = subprocess.run(command, capture_output=True, check=False, cwd=work)
    check_job(done)


def _events(work: Path, level: str, kind: str, *, whole: bool) -> Iterator[dict[str, Any]]:
    """Yield what was told of a kind."""
    database = ["--db", str(work / f"{level}.db")]
    listed = subprocess.run([*ckptprof_command(), "report", "--json", *database], capture_output=True, check=False)
    for one in json.loads(listed.stdout or b'{"checkpoints": []}')["checkpoints"]:
        if one["kind"] != kind:
            continue
        if not whole:
            yield one
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
