"""What the agent itself costs in the situations of a node, beside node_exporter scraped at 1 Hz, against its goals.

    python benchmarks/guest.py --quick --beside ../before --goals --markdown

Agents of each level, of this tree and of the one `--beside` it, and two node_exporters go on all the time, and all are
measured in the same windows, while one situation after another begins, settles and ends. They do not count each other
(nor this program) as interpreters, so that none is watched as a job; beside saves they take turns, and the others are
stopped (SIGSTOP). A crowd is measured while it is new: an idle interpreter is watched closely for 90 s. With `--levels
poll`, as root, it all happens in a PID namespace of its own; at trace an agent sees the host's processes, whoever they
are: nothing else should run there.

"one job" starts the agents one after the other, each beside a new job that saves 24 MB every ten seconds, and compares
what they report of its saves with its log.

The wall clock of a job that keeps all cores busy, and of everyday work (pip, npm, a kernel unpacked, `make -j2`,
containers), is compared in turns as well: beside no agent, a new one of each level, and none again. Nobody scrapes.
What everyday work needs is fetched first, as users fetch it. A situation that did not go on until its end (beside.py),
or an agent that ended, ends this program with an error.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beside import SITUATIONS, Goal, everyday, training
from ckptprof.service.title import set_title
from contenders import Contender, agent, ckptprof, isolate, node_exporter, proving, scraping, tree
from figures import machine, markdown, median, parser, show

LEVELS = ("trace", "poll")
ROLES = {"ckptprof:record": "recorder", "ckptprof:sample": "sampler"}
WALL_CLOCK = "wall clock"
EVERYDAY = "everyday work"
ONE_JOB = "one job"
TURN_SECONDS = 8.0  # until an agent that was stopped has taken in what it missed
_BURN = """
import sys, time
for line in sys.stdin:
    began = time.perf_counter()
    sum(range(int(line)))
    print(time.perf_counter() - began, flush=True)
"""


@dataclass(frozen=True)
class Guest:
    """An agent that is measured."""

    of: str
    level: str
    contender: Contender


def trees(options: Any) -> dict[str, Path | None]:
    """Return which agents are measured: that of this tree, and of the tree beside it."""
    beside: dict[str, Path | None] = {} if options.beside is None else {"before": options.beside.resolve()}
    return {"now": None, **beside}


def guests_of(stack: contextlib.ExitStack, directory: Path, options: Any) -> list[Guest]:
    """Start an agent of each level and tree."""
    found = []
    for of, where in trees(options).items():
        for level in options.levels:
            database = directory / f"{of}-{level}.db"
            contender = agent(database, "--level", level, name=f"{of}-{level}", of=where)
            found.append(Guest(of, level, stack.enter_context(contender)))
    return found


def windows(contenders: Sequence[Contender], count: int, seconds: float) -> dict[str, list[dict[str, float]]]:
    """Return, for each contender and window, the percent of a core that it used: in all and by role."""
    shares: dict[str, list[dict[str, float]]] = {contender.name: [] for contender in contenders}
    for _ in range(count):
        before = [(one.cpu_ns(), one.cpu_by_process()) for one in contenders]
        began = time.monotonic_ns()
        time.sleep(seconds)
        elapsed = time.monotonic_ns() - began
        for contender, (used, roles) in zip(contenders, before, strict=True):
            total = max(contender.cpu_ns() - used, contender.least_ns)
            row = {"all": total / elapsed * 100, **dict.fromkeys(ROLES.values(), 0.0)}
            for pid, (name, spent) in contender.cpu_by_process().items():
                if name in ROLES:
                    row[ROLES[name]] += (spent - roles.get(pid, (name, 0))[1]) / elapsed * 100
            row["others"] = max(0.0, 2 * row["all"] - sum(row.values()))
            shares[contender.name].append(row)
    return shares


def measured(
    name: str, count: int | None, guests: Sequence[Guest], peers: Sequence[Contender], options: Any
) -> list[dict[str, Any]]:
    """Return a row for each agent in the windows of one situation."""
    contenders = [*(guest.contender for guest in guests), *peers]
    shares = windows(contenders, options.windows, options.window)
    first, second = ([row["all"] for row in shares[peer.name]] for peer in peers)
    rows = []
    for guest in guests:
        mine = shares[guest.contender.name]
        totals = [row["all"] for row in mine]
        row = {"situation": name, "count": count, "level": guest.level, "tree": guest.of, "percent": median(totals)}
        row |= {role: median([one[role] for one in mine]) for role in (*ROLES.values(), "others")}
        row["ratio"] = median([own / theirs for own, theirs in zip(totals, first, strict=True)])
        row["ratio_min"] = min(own / theirs for own, theirs in zip(totals, first, strict=True))
        row["ratio_max"] = max(own / theirs for own, theirs in zip(totals, first, strict=True))
        row["node_exporter"] = median(first)
        row["A/A"] = median([other / one for other, one in zip(second, first, strict=True)])
        row |= {"pss_mb": guest.contender.alone_bytes() / 1e6, "load": os.getloadavg()[0]}
        rows.append(row)
    return rows


def in_turns(  # noqa: PLR0917 - as `measured`, and whom to scrape
    name: str, count: int | None, guests: Sequence[Guest], peers: Sequence[Contender], urls: list[str], options: Any
) -> list[dict[str, Any]]:
    """Return the rows of windows of each agent, in which the others are stopped."""
    rows: list[dict[str, Any]] = []
    scraped = list(urls)
    urls[:] = [peer.url for peer in peers if peer.url]
    time.sleep(1.5)  # a scrape of one that is stopped would wait
    for guest in guests:
        _signal(guest, signal.SIGSTOP)
    try:
        for guest in guests:
            _signal(guest, signal.SIGCONT)
            urls.append(guest.contender.url or "")
            time.sleep(min(TURN_SECONDS, options.settle))
            rows += measured(name, count, [guest], peers, options)
            urls.pop()
            time.sleep(1.5)
            _signal(guest, signal.SIGSTOP)
    finally:
        for guest in guests:
            _signal(guest, signal.SIGCONT)
    urls[:] = scraped
    time.sleep(min(TURN_SECONDS, options.settle))
    return rows


def in_situations(names: Sequence[str], guests: Sequence[Guest], work: Path, options: Any) -> list[dict[str, Any]]:
    """Let one situation after another begin and end; return the rows of all."""
    rows: list[dict[str, Any]] = []
    peers = [node_exporter("first"), node_exporter("second")]
    with contextlib.ExitStack() as stack:
        for peer in peers:
            stack.enter_context(peer)
        urls = [one.url for one in (*(guest.contender for guest in guests), *peers) if one.url]
        stack.enter_context(scraping(urls))
        time.sleep(options.settle)
        for name in names:
            situation, directory = SITUATIONS[name], work / name
            directory.mkdir()
            with situation.make(directory):
                time.sleep(min(situation.settle_seconds, options.settle))
                if situation.in_turns:
                    rows += in_turns(name, situation.count, guests, peers, urls, options)
                else:
                    rows += measured(name, situation.count, guests, peers, options)
            print(json.dumps(rows[-len(guests) :]), file=sys.stderr, flush=True)
    return rows


def beside_one_job(work: Path, options: Any) -> list[dict[str, Any]]:
    """Return a row for each turn of an agent: what it takes and reports while nothing but a new job runs."""
    ways = [(level, of) for level in options.levels for of in trees(options)]
    rows = []
    for turn, (level, of) in enumerate(([*ways, *ways[::-1]] * options.windows)[: options.windows * len(ways)]):
        directory, where = work / f"job-{turn}", trees(options)[of]
        directory.mkdir()
        database = directory / "db"
        with agent(database, "--level", level, of=where) as guest, training(directory, 10.0, 24):
            time.sleep(min(TURN_SECONDS, options.settle))
            (row,) = windows([guest], 1, options.window)[guest.name]
            row["pss_mb"] = guest.alone_bytes() / 1e6
        listing = subprocess.run(ckptprof("list", "--db", str(database), "--json", tree=where), stdout=-1, check=True)
        found = json.loads(listing.stdout)["checkpoints"]
        logged = [json.loads(line) for line in (directory / "truth.jsonl").read_text().splitlines()]
        rows.append({"level": level, "tree": of, **row, **compared(logged, found), "load": os.getloadavg()[0]})
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


def compared(logged: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return how many saves a job logged, how many were reported, and the median errors of these in ms."""
    pairs = [(save, one) for save in logged for one in found if abs(one["start_ns"] - save["start_ns"]) < 2e9]
    errors = {
        "start": [one["start_ns"] - save["start_ns"] for save, one in pairs],
        "end": [one["end_ns"] - save["end_ns"] for save, one in pairs],
        "blocked": [(one["stall_ns"] or 0) - save["end_ns"] + save["start_ns"] for save, one in pairs],
    }
    medians = {f"{name} (ms)": median(each) / 1e6 if each else None for name, each in errors.items()}
    return {"saves": len(logged), "reported": len(found), "found": len(pairs), **medians}


def _signal(guest: Guest, number: int) -> None:
    pids = tree(guest.contender.process.pid)
    for pid in pids if number == signal.SIGSTOP else reversed(pids):  # the recorder never waits for a stopped sampler
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


@contextlib.contextmanager
def burning(seconds: float) -> Iterator[Callable[[], float]]:
    """Have a process for each CPU; yields what lets all count for so long and returns the seconds of the slowest."""
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(os.cpu_count() or 1):
            one = subprocess.Popen([sys.executable, "-c", _BURN], stdin=-1, stdout=-1, text=True)
            stack.callback(one.wait)
            stack.callback(one.kill)
            found.append(one)

        def burn(count: int) -> float:
            for one in found:
                assert one.stdin is not None
                print(count, file=one.stdin, flush=True)
            return max(float(one.stdout.readline()) for one in found if one.stdout is not None)

        with proving("the job on all cores", found):
            count = int(10_000_000 * seconds / min(burn(10_000_000) for _ in range(3)))
            yield lambda: burn(count)


def wall_clock(name: str, once: Callable[[], float], work: Path, options: Any) -> list[dict[str, Any]]:
    """Return by how many percent work takes longer beside a new agent of each level, and beside none again."""
    ways = [None, *options.levels, None]
    took: list[list[float]] = [[] for _ in ways]
    cpu: dict[str, list[float]] = {level: [] for level in options.levels}
    memory = dict.fromkeys(options.levels, 0.0)
    once()  # what is read from storage is in the page cache from now on
    for turn in range(options.pairs):
        for at in [(turn + n) % len(ways) for n in range(len(ways))]:
            if (level := ways[at]) is None:
                took[at].append(once())
                continue
            with agent(work / f"{name}-{turn}-{level}.db", "--level", level, name=f"wall-{level}") as guest:
                time.sleep(3.0)  # its start is no work beside the job
                used_ns = guest.cpu_ns()
                took[at].append(once())
                cpu[level].append((guest.cpu_ns() - used_ns) / took[at][-1] / 1e7)
                memory[level] = max(memory[level], guest.alone_bytes() / 1e6)
        print(json.dumps({"work": name, "seconds": took, "load": os.getloadavg()[0]}), file=sys.stderr, flush=True)
    slower = [[100 * (own / none - 1) for own, none in zip(one, took[0], strict=True)] for one in took]
    lines = []
    for level, some in zip(options.levels, slower[1:-1], strict=True):
        of = f"wall clock of {name}", level
        lines.append(judged((*of, "slower"), median(some), None, Goal(0.5)) | {"A/A": median(slower[-1])})
        lines.append(judged((*of, "CPU"), median(cpu[level]), None, None))
        lines.append(judged((*of, "PSS"), memory[level], None, None))
    return lines


def judged(of: tuple[str, str, str], now: float, before: float | None, goal: Goal | None) -> dict[str, Any]:
    """Return a line of the goals table."""
    ratio = None if before is None or before <= 0 else now / before
    line: dict[str, Any] = dict(zip(("situation", "level", "figure"), of, strict=True))
    line["goal"] = goal and str(goal)
    met = None if goal is None else now <= goal.most
    return {**line, "before": before, "now": now, "now/before": ratio, "met": met, "A/A": None}


def against_goals(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines of the goals table that the rows of all situations give."""
    lines, keys = [], ("situation", "level")
    for row in rows:
        if row["tree"] != "now":
            continue
        situation = SITUATIONS[row["situation"]]
        same = [o for o in rows if o["tree"] == "before" and all(o[key] == row[key] for key in keys)]
        goal = situation.trace if row["level"] == "trace" else situation.poll
        figure = "ratio" if goal is not None and goal.unit == "x" else "percent"
        before = same[0] if same else dict.fromkeys(row)
        of = row["situation"], row["level"]
        lines.append(judged((*of, "CPU"), row[figure], before[figure], goal) | {"A/A": row["A/A"]})
        lines.append(judged((*of, "PSS"), row["pss_mb"], before["pss_mb"], None))
    return lines


def settings() -> Any:
    """Read the command line."""
    made = parser(__doc__)
    made.add_argument("--only", nargs="*", choices=[*SITUATIONS, ONE_JOB, WALL_CLOCK, EVERYDAY], help="default: all")
    made.add_argument("--levels", nargs="*", choices=LEVELS, default=list(LEVELS))
    made.add_argument("--beside", type=Path, metavar="TREE", help="a checkout with a .venv: the agent before")
    made.add_argument("--quick", action="store_true", help="one window of 20 s, short pairs: 12 minutes in all")
    made.add_argument("--windows", type=int, default=6)
    made.add_argument("--window", type=float, default=30.0, help="seconds")
    made.add_argument("--settle", type=float, default=95.0, help="seconds before the first window, as most later")
    made.add_argument("--pairs", type=int, default=20, help="turns of the wall clock")
    made.add_argument("--job-seconds", type=float, default=4.0, help="how long its job takes")
    made.add_argument("--goals", action="store_true", help="exit code 1 where a goal is missed")
    made.add_argument("--markdown", action="store_true", help="print the goals table for docs/benchmarks.md")
    made.add_argument("--work", type=Path, help="where the jobs write; default: the temporary directory")
    options = made.parse_args()
    if options.quick:
        options.windows, options.window, options.job_seconds = 1, 20.0, 1.2
    return options


def main() -> int:
    """Measure and print; returns 1 if a goal is missed that was asked for."""
    options = settings()
    if "trace" not in options.levels:
        isolate()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the agents end, the folder goes
    set_title("benchmark")
    chosen = options.only or [*SITUATIONS, ONE_JOB, WALL_CLOCK, EVERYDAY]
    notes = [f"{name}: {value}" for name, value in machine().items()]
    lines: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ckptprof-bench-", dir=options.work)))
        if named := [name for name in chosen if name in SITUATIONS]:
            with contextlib.ExitStack() as while_measured:
                rows = in_situations(named, guests_of(while_measured, work, options), work, options)
            show("guest", rows, as_json=options.json, notes=notes)
            lines += against_goals(rows)
        if ONE_JOB in chosen:
            rows = beside_one_job(work, options)
            show("guest, one job", rows, as_json=options.json, notes=notes)
            goals = {"trace": Goal(2.0), "poll": Goal(4.0)}
            lines += [judged((ONE_JOB, row["level"], "CPU"), row["all"], None, goals[row["level"]]) for row in rows
                      if row["tree"] == "now"]  # fmt: skip
        if WALL_CLOCK in chosen:
            with burning(options.job_seconds) as burn:
                lines += wall_clock("a job on all cores", burn, work, options)
        if EVERYDAY in chosen:
            lines += wall_clock(EVERYDAY, everyday(work), work, options)
    show("guest, goals", lines, as_json=options.json, notes=notes)
    if options.markdown:
        print(markdown(lines))
    return int(options.goals and any(line["met"] is False for line in lines))


if __name__ == "__main__":
    sys.exit(main())
