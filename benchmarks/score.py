"""What is told of the hold-out (benchmarks/holdout): jobs and faults that detection was never tuned to, as a table.

Each job runs alone and beside a busy loop on each core; both levels look at the same run. One that is told wrong is no
task of its own: what is wrong in general is. A second table has how many verdicts are right, by their confidence.
Needs root, for loop devices; takes an hour for each load. `--only` cases, `--loads`, `--planted` causes and controls;
`--markdown` is for docs/benchmarks.md. `--keep` records each run into a folder instead, and tells what a replay of it
says; `--kept` replays what is there, and runs nothing; tests/recording/adopt.py makes a capture of a recording.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contenders import ROOT, computing, proving
from figures import markdown, parser, show

sys.path[:0] = [str(ROOT / "benchmarks/holdout"), str(ROOT / "tests/e2e/faults"), str(ROOT / "tests/e2e")]
from catalogue import CASES, Case  # noqa: E402 - found by the line above
from fault_grounds import Throttle, loop  # noqa: E402 - likewise
from recorder import ckptprof_command  # noqa: E402 - likewise

JOBS = ROOT / "benchmarks/holdout"
LEVELS = ("trace", "poll")
LOADS = {"alone": 0, "busy": 1, "crowded": 4}  # loops for each core
DEADLINE_SECONDS = 300
NEAR_NS = 500_000_000
NOTHING_FOUND = 3  # the exit code of `report` and `replay` without checkpoints
_LEAST_SECONDS = 0.2  # of blocked time: an error of less is nobody's
_LEAST_FAULT_SECONDS = 0.5  # of blocked time: a device may be too fast for a fault
_BYTES_WRONG = 0.01  # is worth a word
_LEAST_CONFIDENCE = (0.9, 0.8, 0.7, 0.5, 0.0)  # of the rows of the calibration


@contextlib.contextmanager
def _folder(place: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ckptprof-score-", dir=place) as folder:
        yield Path(folder)


GROUNDS: dict[str, Callable[[], AbstractContextManager[Path]]] = {  # no cause of its own: `disk` is where TMPDIR is
    "disk": lambda: _folder("/var/tmp"),  # noqa: S108 - no tmpfs
    "tmpfs": lambda: _folder("/dev/shm"),  # noqa: S108 - a folder of its own in it
    "ext4": loop,
    "xfs": lambda: loop("xfs"),
    "slow": lambda: loop(throttle=Throttle(write_bytes=40_000_000)),
    "slow to read": lambda: loop(throttle=Throttle(read_bytes=40_000_000)),
    "few writes": lambda: loop(throttle=Throttle(write_operations=400)),
    "few operations": lambda: loop(throttle=Throttle(read_operations=1000)),
}


@dataclass(frozen=True)
class Event:
    """What the job logged, and what was told of it; without `truth`, what was told of nothing."""

    case: Case
    load: str
    level: str
    kind: str  # save or restore
    truth: dict[str, Any] | None
    told: dict[str, Any] | None
    faulty: bool = False

    @property
    def blocked_seconds(self) -> float:
        """Return for how long it held training."""
        if self.truth is None:
            return 0.0
        return float(self.truth.get("blocked_seconds", (self.truth["end_ns"] - self.truth["start_ns"]) / 1e9))

    @property
    def optional(self) -> bool:
        """Return whether both answers are right: that it is one, and that it is none."""
        return bool(self.truth and self.truth.get("optional"))

    @property
    def limits(self) -> tuple[str, ...]:
        """Return the limits of which each is right; none if there is nothing to say."""
        own = self.truth.get("limits", ()) if self.truth else ()
        return tuple(own) or (self.case.limits if self.faulty else ())

    @property
    def mode(self) -> str | None:
        """Return the mode that is right; None if both are."""
        return self.truth.get("mode", self.case.mode) if self.truth and self.kind == "save" else None

    @property
    def limit(self) -> str | None:
        """Return the limit that was told."""
        return self.told["verdict"]["limit"] if self.told and self.told.get("verdict") else None

    @property
    def confidence(self) -> float | None:
        """Return how sure the verdict was."""
        return self.told["verdict"]["confidence"] if self.told and self.told.get("verdict") else None

    @property
    def right(self) -> bool | None:
        """Return whether the limit is right, or none of those that a control has not; None if nothing decides that."""
        if self.limit is None or not (self.limits or self.case.accused):
            return None
        return self.limit in self.limits if self.limits else self.limit not in self.case.accused

    @property
    def error(self) -> float | None:
        """Return by which share the blocked time is told wrong; None if not seen, or if it is hardly any."""
        if self.truth is None or self.told is None or self.told["stall_ns"] is None:
            return None
        if self.blocked_seconds < _LEAST_SECONDS:
            return None
        return float(abs(self.told["stall_ns"] / 1e9 - self.blocked_seconds) / self.blocked_seconds)

    @property
    def bytes_error(self) -> float | None:
        """Return by which share its bytes are told wrong; None if it was not seen."""
        if self.truth is None or self.told is None or not self.truth["bytes"]:
            return None
        return float(abs(self.told["unique_bytes"] - self.truth["bytes"]) / self.truth["bytes"])


@contextlib.contextmanager
def _loops(count: int) -> Iterator[None]:
    """Keep so many other programs busy."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        with proving("the busy loops", loops, computing(loops)):
            yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def run(case: Case, load: str, keep: Path | None = None) -> list[Event]:
    """Run one case under both levels; in `keep` stays what they saw."""
    cores = len(os.sched_getaffinity(0))
    with _folder("/var/tmp") as work, GROUNDS[case.ground]() as ground:  # noqa: S108 - no tmpfs
        job = _job(case, work, ground)
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(work)}

        def call(command: Sequence[str]) -> None:
            with (work / "log").open("wb") as log:
                deadline = DEADLINE_SECONDS + 60 * case.minutes
                done = subprocess.run(command, stdout=log, stderr=log, timeout=deadline, check=False, env=environment)
            if done.returncode:
                raise RuntimeError((work / "log").read_text(errors="replace")[-500:])

        if case.prepared:
            call([sys.executable, *job, "--prepare"])
        several = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(case.ranks)]
        command = [sys.executable, *(several if case.ranks > 1 else []), *job]
        for level in reversed(LEVELS):
            command = [*_watch(case, level, work, keep), "--", *command]
        with _loops(case.others + LOADS[load] * cores):
            call(command)
        if not (work / "truth.jsonl").exists():
            raise RuntimeError("the job logged nothing")
        truth = (work / "truth.jsonl").read_text()
        if keep is not None:
            _kept(keep, case, "truth.jsonl").write_text(truth)
            return replayed(case, load, keep)
        return _events(case, load, truth, work)


def replayed(case: Case, load: str, keep: Path) -> list[Event]:
    """Return what a replay tells of a run that was kept."""
    with _folder("/var/tmp") as work:  # noqa: S108 - no tmpfs
        for level in LEVELS:
            capture = _kept(keep, case, f"{level}.ckptrec.gz")
            replay = [*ckptprof_command(), "replay", "--json", "--db", str(work / f"{level}.db"), str(capture)]
            done = subprocess.run(replay, capture_output=True, text=True, check=False)
            if done.returncode not in {0, NOTHING_FOUND}:  # what cannot be told is not what was missed
                raise RuntimeError(done.stderr[-500:])
        return _events(case, load, _kept(keep, case, "truth.jsonl").read_text(), work)


def _kept(keep: Path, case: Case, what: str) -> Path:
    return keep / f"{case.name.replace(' ', '-').replace(',', '')}.{what}"


def _watch(case: Case, level: str, work: Path, keep: Path | None) -> list[str]:
    if keep is None:
        return [*ckptprof_command(), "run", "--level", level, "--db", str(work / f"{level}.db")]
    capture = str(_kept(keep, case, f"{level}.ckptrec.gz"))
    return [*ckptprof_command(), "capture", capture, "--force", "--quiet", "--level", level]


def _events(case: Case, load: str, truth: str, work: Path) -> list[Event]:
    logged = [json.loads(line) for line in truth.splitlines()]
    return [event for level in LEVELS for event in _matched(case, load, level, logged, _told(work, level))]


def _job(case: Case, work: Path, ground: Path) -> list[str]:
    what = {"way": case.way, "dir": ground / "run", "truth": work / "truth.jsonl", "size-mb": case.size_mb}
    what |= {"layout": case.layout, "pace": case.pace, "seconds": case.seconds}
    what |= {name: value for name in ("beside", "minutes", "remedy") if (value := getattr(case, name))}
    return [str(JOBS / case.job), *(word for name, value in what.items() for word in (f"--{name}", str(value)))]


def _told(work: Path, level: str) -> list[dict[str, Any]]:
    report = [*ckptprof_command(), "report", "--db", str(work / f"{level}.db"), "--json"]
    answer = subprocess.run(report, capture_output=True, text=True, check=False)
    if answer.returncode not in {0, NOTHING_FOUND}:
        raise RuntimeError(answer.stderr[-500:])
    told = json.loads(answer.stdout)["checkpoints"] if answer.stdout else []
    return [one for one in told if one["kind"] != "copy"]  # which is told where it has a risk


def _matched(
    case: Case, load: str, level: str, logged: Sequence[dict[str, Any]], told: list[dict[str, Any]]
) -> list[Event]:
    events = []
    true = [one for one in logged if one["kind"] != "none"]
    for at, one in sorted(enumerate(true), key=lambda numbered: bool(numbered[1].get("optional"))):
        alike = [mine for mine in told if mine["kind"] == one["kind"] and _is(mine, one)]
        mine = max(alike, key=lambda mine: _overlap_ns(mine, one), default=None)
        if mine is not None:
            told.remove(mine)
        elif one.get("optional"):
            continue
        event = Event(case, load, level, one["kind"], one, mine)
        faulty = bool(case.limits) and at >= case.first and event.blocked_seconds >= _LEAST_FAULT_SECONDS
        events.append(dataclasses.replace(event, faulty=faulty))
    return events + [Event(case, load, level, extra["kind"], None, extra) for extra in told]


def _is(mine: dict[str, Any], one: dict[str, Any]) -> bool:
    return (one["step"] is not None and mine["step"] == one["step"]) or _overlap_ns(mine, one) >= -NEAR_NS


def _overlap_ns(mine: dict[str, Any], one: dict[str, Any]) -> int:
    return int(min(mine["end_ns"], one["end_ns"]) - max(mine["start_ns"], one["start_ns"]))


def row(load: str, level: str, events: Sequence[Event]) -> dict[str, Any]:
    """Return the figures of one load and level, as the table has them."""
    told = [one for one in events if (one.load, one.level) == (load, level) and not one.optional]
    true = [one for one in told if one.truth is not None]
    seen = [one for one in true if one.told is not None]
    saves, false = [one for one in true if one.kind == "save"], [one for one in told if one.truth is None]
    controls = [one for one in seen if one.case.accused]
    return {
        "load": load,
        "level": level,
        "saves found": _share(one.told is not None for one in saves),
        "restores found": _share(one.told is not None for one in true if one.kind == "restore"),
        "false saves": sum(one.kind == "save" for one in false),
        "false restores": sum(one.kind == "restore" for one in false),
        "limits right": _share(one.limit in one.limits for one in true if one.limits),
        "controls accused": _share(one.limit in one.case.accused for one in controls),
        "blocked error": _percents([one.error for one in seen]),
        "blocked in all": _in_all(told),
        "blocked not told": sum(one.told is not None and one.told["stall_ns"] is None for one in seen),
        "bytes error": _percents([one.bytes_error for one in seen]),
        "async as async": _share(_mode(one) == "async" for one in saves if one.mode == "async"),
        "sync as sync": _share(_mode(one) == "sync" for one in saves if one.mode == "sync"),
        "unclear": _share(one.limit == "unclear" for one in seen),
    }


def calibration(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Return how many verdicts of each confidence are right, of those whose limit is known."""
    judged = [(one.level, one.confidence, one.right) for one in events if one.right is not None and not one.optional]
    rows, below = [], math.inf
    for least in _LEAST_CONFIDENCE:
        told = [(level, right) for level, sure, right in judged if sure is not None and least <= sure < below]
        shares = {level: _share(bool(right) for of, right in told if of == level) for level in LEVELS}
        rows.append({"confidence": f"{least:g} and more", **shares})
        below = least
    return rows


def _mode(one: Event) -> str | None:
    return None if one.told is None else one.told["mode"]


def _share(right: Iterable[bool]) -> str:
    kept = list(right)
    return f"{sum(kept)} of {len(kept)}"


def _in_all(events: Iterable[Event]) -> str:
    """Return by how much the sum of what was told of blocked time is off; what was missed or invented counts, too."""
    pairs = [(one.told["stall_ns"] or 0 if one.told else 0, one.blocked_seconds) for one in events]
    told, true = sum(ns for ns, _ in pairs) / 1e9, sum(seconds for _, seconds in pairs)
    return f"{told / true - 1:+.1%}" if true else "-"


def _percents(found: Iterable[float | None]) -> str:
    """Return the median and the 95th percentile."""
    errors = sorted(error for error in found if error is not None)
    if not errors:
        return "-"
    return f"{statistics.median(errors):.0%} / {errors[min(len(errors) - 1, int(0.95 * len(errors)))]:.0%}"


def line(one: Event) -> str:
    """Return what was told of one event."""
    head = f"{one.load:8} {one.level:5} {one.case.name:44} {one.kind:7} "
    if one.truth is None:
        return head + f"told of nothing: {one.told['path'] if one.told else '-'}"
    if one.told is None:
        return head + "missed"
    held = "-" if one.told["stall_ns"] is None else f"{one.told['stall_ns'] / 1e9:.2f}"
    wanted = "/".join(one.limits) if one.limits else "not " + "/".join(one.case.accused or ("-",))
    mode = f"{_mode(one) or '-'} ({one.mode or '-'})  " if one.kind == "save" else ""
    wrong = f"  bytes {one.bytes_error:.0%} wrong" if one.bytes_error and one.bytes_error > _BYTES_WRONG else ""
    return head + f"{one.limit or '-':13} ({wanted})  {mode}blocked {held} s of {one.blocked_seconds:.2f} s{wrong}"


def main() -> int:
    """Run them; ends with 1 if a run failed."""
    options = parser(__doc__)
    options.add_argument("--only", nargs="*", default=[], help="cases by how they begin")
    options.add_argument("--loads", nargs="*", default=["alone", "busy"], choices=list(LOADS))
    options.add_argument("--planted", action="store_true", help="only cases with a cause and controls")
    options.add_argument("--minutes", type=float, help="for `trained for hours`, which trains so long")
    options.add_argument("--keep", type=Path, help="a folder for what is recorded of each run")
    options.add_argument("--kept", type=Path, help="a folder of which all is replayed")
    options.add_argument("--markdown", action="store_true")
    chosen = options.parse_args()
    if chosen.keep is not None:
        chosen.keep.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what is mounted and held is taken away
    lasting = {"minutes": chosen.minutes} if chosen.minutes else {}
    cases = [dataclasses.replace(case, **lasting) if case.minutes else case for case in CASES]
    if chosen.planted:
        cases = [dataclasses.replace(one, seconds=1.0 if one.mode == "sync" else one.seconds) for one in cases
                 if one.limits or one.accused]  # fmt: skip
    events: list[Event] = []
    failures = 0
    for load in chosen.loads:
        for case in cases:
            if chosen.only and not any(case.name.startswith(name) for name in chosen.only):
                continue
            try:
                found = replayed(case, load, chosen.kept) if chosen.kept else run(case, load, chosen.keep)
            except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
                failures += 1
                print(f"{case.name}: {error}", file=sys.stderr)
                continue
            events += found
            print("\n".join(map(line, found)), file=sys.stderr, flush=True)
    rows = [row(load, level, events) for load in chosen.loads for level in LEVELS]
    for name, table in (("score", rows), ("score-confidence", calibration(events))):
        if chosen.markdown:
            print(markdown(table), end="\n\n")
        else:
            show(name, table, as_json=chosen.json)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
