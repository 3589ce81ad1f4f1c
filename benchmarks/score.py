"""What is told of the hold-out (benchmarks/holdout): jobs and faults that detection was never tuned to, as a table.

Each job runs alone and beside a busy loop on each core; both levels look at the same run. One that is told wrong is no
task of its own: what is wrong in general is. Needs root, for loop devices; takes an hour for each load. `--only` cases,
`--loads`; `--markdown` is for docs/benchmarks.md.
"""

from __future__ import annotations

import contextlib
import json
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

from contenders import ROOT
from figures import parser, show

sys.path[:0] = [str(ROOT / "benchmarks/holdout"), str(ROOT / "tests/e2e/faults"), str(ROOT / "tests/e2e")]
from cases import CASES, Case  # noqa: E402 - found by the line above
from fault_grounds import Throttle, loop  # noqa: E402 - likewise
from recorder import ckptprof_command  # noqa: E402 - likewise

JOBS = ROOT / "benchmarks/holdout"
LEVELS = ("trace", "poll")
LOADS = {"alone": 0, "busy": 1, "crowded": 3}  # loops for each core
DEADLINE_SECONDS = 300
NEAR_NS = 500_000_000
_LEAST_SECONDS = 0.2  # of blocked time: an error of less is nobody's
_BYTES_WRONG = 0.01  # is worth a word


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
        return (self.truth["end_ns"] - self.truth["start_ns"]) / 1e9 if self.truth else 0.0

    @property
    def limit(self) -> str | None:
        """Return the limit that was told."""
        return self.told["verdict"]["limit"] if self.told and self.told.get("verdict") else None

    @property
    def error(self) -> float | None:
        """Return by which share the blocked time of a save is told wrong; None if not seen, or if it is hardly any."""
        if self.kind != "save" or self.told is None or self.told["stall_ns"] is None:
            return None
        if self.blocked_seconds < _LEAST_SECONDS:
            return None
        return float(abs(self.told["stall_ns"] / 1e9 - self.blocked_seconds) / self.blocked_seconds)

    @property
    def bytes_error(self) -> float | None:
        """Return by which share its bytes are told wrong; None if it was not seen."""
        if self.truth is None or self.told is None:
            return None
        return float(abs(self.told["unique_bytes"] - self.truth["bytes"]) / self.truth["bytes"])


@contextlib.contextmanager
def _loops(count: int) -> Iterator[None]:
    """Keep so many other programs busy."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def run(case: Case, load: str) -> list[Event]:
    """Run one case under both levels."""
    cores = len(os.sched_getaffinity(0))
    with _folder("/var/tmp") as work, GROUNDS[case.ground]() as ground:  # noqa: S108 - no tmpfs
        job = _job(case, work, ground)
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(work)}

        def call(command: Sequence[str]) -> None:
            with (work / "log").open("wb") as log:
                done = subprocess.run(
                    command, stdout=log, stderr=log, timeout=DEADLINE_SECONDS, check=False, env=environment
                )
            if done.returncode:
                raise RuntimeError((work / "log").read_text(errors="replace")[-500:])

        if case.prepared:
            call([sys.executable, *job, "--prepare"])
        several = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(case.ranks)]
        command = [sys.executable, *(several if case.ranks > 1 else []), *job]
        for level in reversed(LEVELS):
            command = [*ckptprof_command(), "run", "--level", level, "--db", str(work / f"{level}.db"), "--", *command]
        with _loops(case.others + LOADS[load] * cores):
            call(command)
        logged = [json.loads(line) for line in (work / "truth.jsonl").read_text().splitlines()]
        return [event for level in LEVELS for event in _matched(case, load, level, logged, _told(work, level))]


def _job(case: Case, work: Path, ground: Path) -> list[str]:
    what = {"way": case.way, "dir": ground / "run", "truth": work / "truth.jsonl", "size-mb": case.size_mb}
    how = {"layout": case.layout, "pace": case.pace, "seconds": case.seconds, "beside": case.beside or None}
    options = [(f"--{name}", str(value)) for name, value in {**what, **how}.items() if value is not None]
    return [str(JOBS / case.job), *(word for option in options for word in option)]


def _told(work: Path, level: str) -> list[dict[str, Any]]:
    report = [*ckptprof_command(), "report", "--db", str(work / f"{level}.db"), "--json"]
    answer = subprocess.run(report, capture_output=True, text=True, check=False)
    return json.loads(answer.stdout)["checkpoints"] if answer.stdout else []


def _matched(
    case: Case, load: str, level: str, logged: Sequence[dict[str, Any]], told: list[dict[str, Any]]
) -> list[Event]:
    events = []
    for at, one in enumerate(one for one in logged if one["kind"] != "none"):
        alike = [mine for mine in told if mine["kind"] == one["kind"]]
        mine = next((mine for mine in alike if mine["step"] == one["step"] or _meets(mine, one)), None)
        if mine is not None:
            told.remove(mine)
        faulty = bool(case.limits) and at >= case.first
        events.append(Event(case, load, level, one["kind"], one, mine, faulty))
    return events + [Event(case, load, level, extra["kind"], None, extra) for extra in told]


def _meets(save: dict[str, Any], one: dict[str, Any]) -> bool:
    return bool(save["start_ns"] <= one["end_ns"] + NEAR_NS and one["start_ns"] <= save["end_ns"] + NEAR_NS)


def row(load: str, level: str, events: Sequence[Event]) -> dict[str, Any]:
    """Return the figures of one load and level, as the table has them."""
    told = [one for one in events if (one.load, one.level) == (load, level)]
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
        "causes right": _share(one.limit in one.case.limits for one in true if one.faulty),
        "controls accused": _share(one.limit in one.case.accused for one in controls),
        "blocked error": _percents([one.error for one in seen]),
        "blocked not told": sum(one.told is not None and one.told["stall_ns"] is None for one in seen),
        "bytes error": _percents([one.bytes_error for one in seen]),
        "async as async": _share(_mode(one) == "async" for one in saves if one.case.mode == "async"),
        "sync as sync": _share(_mode(one) == "sync" for one in saves if one.case.mode == "sync"),
        "unclear": _share(one.limit == "unclear" for one in seen),
    }


def _mode(one: Event) -> str | None:
    return None if one.told is None else one.told["mode"]


def _share(right: Iterable[bool]) -> str:
    kept = list(right)
    return f"{sum(kept)} of {len(kept)}"


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
    wanted = "/".join(one.case.limits) if one.faulty else "not " + "/".join(one.case.accused or ("-",))
    mode = f"{_mode(one) or '-'} ({one.case.mode})  " if one.kind == "save" else ""
    wrong = f"  bytes {one.bytes_error:.0%} wrong" if one.bytes_error and one.bytes_error > _BYTES_WRONG else ""
    return head + f"{one.limit or '-':13} ({wanted})  {mode}blocked {held} s of {one.blocked_seconds:.2f} s{wrong}"


def main() -> int:
    """Run them; ends with 1 if a run failed."""
    options = parser(__doc__)
    options.add_argument("--only", nargs="*", default=[], help="cases by how they begin")
    options.add_argument("--loads", nargs="*", default=["alone", "busy"], choices=list(LOADS))
    options.add_argument("--markdown", action="store_true")
    chosen = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what is mounted and held is taken away
    events: list[Event] = []
    failures = 0
    for load in chosen.loads:
        for case in CASES:
            if chosen.only and not any(case.name.startswith(name) for name in chosen.only):
                continue
            try:
                found = run(case, load)
            except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
                failures += 1
                print(f"{case.name}: {error}", file=sys.stderr)
                continue
            events += found
            print("\n".join(map(line, found)), file=sys.stderr, flush=True)
    rows = [row(load, level, events) for load in chosen.loads for level in LEVELS]
    if chosen.markdown:
        heads = list(rows[0])
        cells = [heads, ["---"] * len(heads), *([str(one[head]) for head in heads] for one in rows)]
        print("\n".join("| " + " | ".join(each) + " |" for each in cells))
    else:
        show("score", rows, as_json=chosen.json)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
