"""Run the tests of one kind, and alone again those that failed: `make certain`, or `make live` with `--live`.

The deterministic tests decide at once: what needs a second try met another test, or assumed something of the machine,
and is to be mended; that few are borne and named keeps right work from waiting for it.

A live case is scored. A try in which the job itself broke says nothing of us and does not count. What failed is tried
again with nothing else running; three failures are red. Too many second tries are red as well: a regression that
makes each case fail now and then must not hide behind them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
from tests.leftovers import leave_none, own

FAILURES = 1  # pytest.ExitCode
TO_SUM_UP_SECONDS = 60
MOST_BROKEN = 5  # tries in which the job itself failed
ENDS = ("teardown", "???")  # the last step of a try; by the second pytest-xdist tells of a worker that crashed


class JobBrokeError(RuntimeError):
    """What is watched failed, or the machine that it needs, which says nothing of who watches: it is tried again."""


@dataclass(frozen=True)
class Kind:
    """One kind of tests: which they are, and what is borne of them."""

    marked: str
    failures: int  # with so many a case is red
    again: Mapping[str, float]  # the greatest share of the cases of a level that may need a second try


CERTAIN = Kind("not live", failures=2, again={"": 0.001})
LIVE = Kind("live", failures=3, again={"trace": 0.05, "poll": 0.15})
FEW = 2  # so many second tries prove nothing, in however small a selection


@dataclass
class Case:
    """What came of one test."""

    failed: bool = False  # in the last try
    failures: int = 0
    broken: int = 0  # tries in which the job broke

    def is_to_be_tried(self, kind: Kind) -> bool:
        """Return whether another try could still make it green."""
        return self.failed and self.failures < kind.failures and self.broken < MOST_BROKEN


def level_of(nodeid: str, kind: Kind) -> str:
    """Return the level whose share a test counts for; a test of both is one of the trace, the stricter."""
    if "" in kind.again:
        return ""
    return "poll" if "poll" in nodeid and "trace" not in nodeid else "trace"


def add(cases: dict[str, Case], lines: Iterable[str]) -> None:
    """Add one try of some tests: a line of JSON for each step of each, as conftest.py writes them.

    A try that was cut off, which has no teardown, says nothing.
    """
    tried: dict[str, list[bool]] = {}
    whole = set()
    for line in lines:
        told = json.loads(line)
        steps = tried.setdefault(told["id"], [])
        if told["outcome"] == "failed":
            steps.append(told["broke"])
        if told["step"] in ENDS:
            whole.add(told["id"])
    for nodeid, failed in ((one, tried[one]) for one in tried if one in whole):
        case = cases.setdefault(nodeid, Case())
        case.failed = bool(failed)
        if failed:
            case.broken += all(failed)
            case.failures += not all(failed)


def texts(lines: Iterable[str]) -> list[str]:
    """Return what each failed step of each test says."""
    told = [json.loads(line) for line in lines]
    return [f"\n_____ {one['id']} ({one['step']})\n{one['text']}" for one in told if one["outcome"] == "failed"]


def too_many(cases: Mapping[str, Case], kind: Kind) -> list[str]:
    """Return the levels of which so many cases needed a second try that a regression may hide behind them."""

    def share(level: str, least: int) -> int:
        return sum(case.failures >= least for name, case in cases.items() if level_of(name, kind) == level)

    return [level for level, most in kind.again.items() if share(level, 1) > max(FEW, most * share(level, 0))]


def verdict(cases: Mapping[str, Case], kind: Kind) -> tuple[list[str], bool]:
    """Return what is to be said of all cases, and whether they are green."""
    said = []
    for level, most in kind.again.items():
        mine = [case for name, case in cases.items() if level_of(name, kind) == level]
        again = sum(case.failures > 0 for case in mine)
        said.append(f"{kind.marked}{level and ' at ' + level}: {len(mine)} cases, {again} failed at first")
        if level in too_many(cases, kind):
            said.append(f"  red: a regression may hide behind so many second tries (at most {most:.2%})")
    for name, case in sorted(cases.items()):
        if case.failures or case.broken:
            end = "red" if case.failed else "green in the end"
            said.append(f"  {end}: {name}: failed {case.failures} times, the job broke {case.broken} times")
    return said, not too_many(cases, kind) and not any(case.failed for case in cases.values())


def exit_code(command: list[str], environment: Mapping[str, str], end: float = math.inf) -> int | None:
    """Run pytest to its end; None if it was out of time, and interrupted."""
    process = subprocess.Popen(command, env=environment)
    with suppress(subprocess.TimeoutExpired):
        return process.wait(None if math.isinf(end) else max(0.0, end - time.monotonic()))
    process.send_signal(signal.SIGINT)
    try:
        process.wait(TO_SUM_UP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return None


def run(kind: Kind, workers: str, minutes: float, flags: list[str]) -> int:
    """Run them all, or as many as the time allows, then alone those that failed; return the exit code of it all."""
    pytest = [sys.executable, "-m", "pytest"]
    cases: dict[str, Case] = {}
    with tempfile.TemporaryDirectory(prefix=own("tries-")) as folder:
        outcomes, chosen = Path(folder, "outcomes"), Path(folder, "chosen")
        environment = {**os.environ, "CKPTPROF_TEST_OUTCOMES": str(outcomes)}

        def try_them(command: list[str], end: float = math.inf) -> int | None:
            outcomes.write_text("")
            code = exit_code(command, environment, end)
            lines = outcomes.read_text(encoding="utf-8").splitlines()
            if code is None:  # it was killed, most often, before it had printed what failed
                print(*texts(lines), sep="\n", flush=True)
            add(cases, lines)
            return code

        everything = [*pytest, "-n", workers, "--dist", "loadgroup", "-m", kind.marked, "--durations=10", *flags]
        code = first = try_them(everything, time.monotonic() + minutes * 60)
        while code in (None, FAILURES) and not too_many(cases, kind):
            names = [name for name, case in cases.items() if case.is_to_be_tried(kind)]
            if not names:
                break
            print(f"\n===== again, alone: {len(names)} that failed =====", flush=True)
            chosen.write_text("\n".join(names) + "\n", encoding="utf-8")
            code = try_them([*pytest, "-n", "0", f"@{chosen}"])
    said, green = verdict(cases, kind)
    print("\n===== score =====", *said, sep="\n", flush=True)
    if first is None:
        print(f"  out of time after {minutes:g} minutes: nothing is said of the others")
    if code not in (None, 0, FAILURES):  # interrupted, or pytest itself failed
        print("  red: not all of them ran to their end")
        return code
    known = code != FAILURES or any(case.failed for case in cases.values())
    return 0 if green and known and cases else FAILURES


def main() -> None:
    """Read the command line; what is not known here is pytest's."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--live", action="store_true")
    parser.add_argument("--workers", default="2")
    parser.add_argument("--minutes", type=float, default=math.inf, help="after which it is interrupted")
    told, flags = parser.parse_known_args()
    leave_none()
    raise SystemExit(run(LIVE if told.live else CERTAIN, told.workers, told.minutes, flags))


if __name__ == "__main__":
    main()
