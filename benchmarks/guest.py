"""What the agent itself costs in the situations of a node, beside node_exporter scraped at 1 Hz, against its goals.

    python benchmarks/guest.py --quick --beside ../before --goals --markdown

Agents of each level, of this tree and of the one `--beside` it, and two node_exporters go on all the time, and all are
measured in the same windows, while one situation after another begins, settles and ends. They do not count each other
(nor this program) as interpreters, so that none is watched as a job. A crowd is measured while it is new: an idle
interpreter is watched closely for 90 s. With `--levels poll`, as root, it all happens in a PID namespace of its own; at
trace an agent sees the host's processes, whoever they are: nothing else should run there.

The wall clock of a job that keeps all cores busy is compared in turns: the agents of the other turns are stopped
(SIGSTOP) meanwhile, and nobody scrapes. `lateness`, `files` and `hours` are lateness.py, files_cost.py and hours.py of
each tree. `--curves FILE` measures what the cost grows with, and draws it (`--from` draws what was printed as JSON).
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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beside.burning import burners
from beside.drawing import Panel, drawn
from beside.situations import SITUATIONS, Goal, Situation, crowded
from ckptprof.service.title import set_title
from contenders import Contender, agent, isolate, node_exporter, scraping, tree
from figures import machine, median, parser, show

LEVELS = ("trace", "poll")
ROLES = {"ckptprof:record": "recorder", "ckptprof:sample": "sampler"}
OTHERS = ("wall clock", "lateness", "files of a save", "hours")
CURVES = {  # what it is drawn over, and how many of it there are
    "interpreters": (250, 500, 1_000, 2_000),
    "files": (1_000, 5_000, 20_000),
    "ranks": (8, 16, 32, 64),
    "events": (100, 1_000, 4_000),
}
FILES_OF_A_SAVE = (1_000, 10_000, 30_000, 100_000)
TITLES = {
    "interpreters": "idle interpreters",
    "files": "open files",
    "ranks": "ranks of 8 threads that save every 10 s",
    "events": "files written a second",
}


@dataclass(frozen=True)
class Guest:
    """An agent that is measured."""

    of: str
    level: str
    contender: Contender


def guests_of(stack: contextlib.ExitStack, directory: Path, options: Any) -> list[Guest]:
    """Start an agent of each level and tree."""
    trees: dict[str, Path | None] = {"now": None}
    if options.beside is not None:
        trees["before"] = options.beside.resolve()
    found = []
    for of, where in trees.items():
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
            shares[contender.name].append(row)
    return shares


def measured(name: str, guests: Sequence[Guest], peers: Sequence[Contender], options: Any) -> list[dict[str, Any]]:
    """Return a row for each agent in the windows of one situation."""
    contenders = [*(guest.contender for guest in guests), *peers]
    shares = windows(contenders, options.windows, options.window)
    first, second = ([row["all"] for row in shares[peer.name]] for peer in peers)
    rows = []
    for guest in guests:
        mine = shares[guest.contender.name]
        totals = [row["all"] for row in mine]
        rss, _ = guest.contender.memory_bytes()
        row = {"situation": name, "level": guest.level, "tree": guest.of, "percent": median(totals)}
        row |= {role: median([one[role] for one in mine]) for role in ROLES.values()}
        row["others"] = max(0.0, median([one["all"] - one["recorder"] - one["sampler"] for one in mine]))
        row["ratio"] = median([own / theirs for own, theirs in zip(totals, first, strict=True)])
        row["ratio_min"] = min(own / theirs for own, theirs in zip(totals, first, strict=True))
        row["ratio_max"] = max(own / theirs for own, theirs in zip(totals, first, strict=True))
        row["node_exporter"] = median(first)
        row["A/A"] = median([other / one for other, one in zip(second, first, strict=True)])
        row |= {"rss_mb": rss / 1e6, "pss_mb": guest.contender.alone_bytes() / 1e6, "load": os.getloadavg()[0]}
        rows.append(row)
    return rows


def in_situations(
    names: Sequence[tuple[str, Situation]], guests: Sequence[Guest], work: Path, options: Any
) -> list[dict[str, Any]]:
    """Let one situation after another begin and end; return the rows of all."""
    rows: list[dict[str, Any]] = []
    peers = [node_exporter("first"), node_exporter("second")]
    with contextlib.ExitStack() as stack:
        for peer in peers:
            stack.enter_context(peer)
        urls = [one.url for one in (*(guest.contender for guest in guests), *peers) if one.url]
        stack.enter_context(scraping(urls))
        time.sleep(options.settle)
        for number, (name, situation) in enumerate(names):
            directory = work / str(number)
            directory.mkdir()
            lasts = situation.settle_seconds + options.windows * options.window
            with situation.make(directory, lasts):
                time.sleep(min(situation.settle_seconds, options.settle))
                rows += measured(name, guests, peers, options)
            print(json.dumps(rows[-len(guests) :]), file=sys.stderr, flush=True)
    return rows


def _signal(guest: Guest, number: int) -> None:
    pids = tree(guest.contender.process.pid)
    for pid in pids if number == signal.SIGSTOP else reversed(pids):  # the recorder never waits for a stopped sampler
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def wall_clock(guests: Sequence[Guest], options: Any) -> list[dict[str, Any]]:
    """Return by how many percent a job on all cores is slower beside each agent of this tree, and beside none."""
    ways: list[Guest | None] = [None, *(guest for guest in guests if guest.of == "now"), None]
    took: list[list[float]] = [[] for _ in ways]
    for guest in guests:
        _signal(guest, signal.SIGSTOP)
    with burners() as burn:
        count = 10_000_000
        count = int(count * options.job_seconds / min(burn(count) for _ in range(3)))
        for turn in range(options.pairs):
            for at in [(turn + n) % len(ways) for n in range(len(ways))]:
                way = ways[at]
                if way is not None:
                    _signal(way, signal.SIGCONT)
                time.sleep(0.5)  # what has come together is worked off
                took[at].append(burn(count))
                if way is not None:
                    _signal(way, signal.SIGSTOP)
    for guest in guests:
        _signal(guest, signal.SIGCONT)
    slower = [[100 * (own / none - 1) for own, none in zip(one, took[0], strict=True)] for one in took]
    noise = median(slower[-1])
    return [
        judged(("wall clock of a job on all cores", way.level, "slower"), median(some), None, Goal(0.5))
        | {"A/A": noise}
        for way, some in zip(ways, slower, strict=True)
        if way is not None
    ]


def told_by(program: str, arguments: Sequence[str], of: Path | None) -> list[dict[str, Any]]:
    """Return the rows of another benchmark, by the ckptprof of this tree or of another."""
    python = Path(sys.executable) if of is None else of / ".venv/bin/python"
    command = [str(python), str(Path(__file__).with_name(f"{program}.py")), "--json", *arguments]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE)
    rows: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
    return rows


def judged(of: tuple[str, str, str], now: float, before: float | None, goal: Goal | None) -> dict[str, Any]:
    """Return a line of the goals table."""
    ratio = None if before is None or before <= 0 else now / before
    line: dict[str, Any] = dict(zip(("situation", "level", "figure"), of, strict=True))
    line["goal"] = goal and str(goal)
    met = None if goal is None else now <= goal.most
    return {**line, "before": before, "now": now, "now/before": ratio, "met": met, "A/A": None}


def against_goals(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines of the goals table that the rows of all situations give."""
    lines = []
    for row in rows:
        situation = SITUATIONS.get(row["situation"])
        if row["tree"] != "now" or situation is None:
            continue
        same = [o for o in rows if (o["situation"], o["level"], o["tree"]) == (*_of(row), "before")]
        goal = situation.trace if row["level"] == "trace" else situation.poll
        figure = "ratio" if goal is not None and goal.unit == "x" else "percent"
        before = same[0] if same else dict.fromkeys(row)
        line = judged((*_of(row), "CPU"), row[figure], before[figure], goal) | {"A/A": row["A/A"]}
        lines.append(line)
        memory = Goal(80, "MB") if row["situation"] == "everyday" else None
        lines.append(judged((*_of(row), "PSS"), row["pss_mb"], before["pss_mb"], memory))
    return lines


def _of(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["situation"], row["level"]


def replayed(name: str, options: Any) -> list[dict[str, Any]]:
    """Return the lines that other benchmarks give, run in this tree and in the one beside."""
    trees = [None] if options.beside is None else [None, options.beside.resolve()]
    if name == "lateness":
        arguments, figures = ["--rates", "10", "--seconds", "15"], [("p99_ms", "p99", Goal(5, "ms"))]
    elif name == "files of a save":
        arguments = ["--files", str(options.files)]
        figures = [("CPU s", "CPU", Goal(1, "s")), ("longest frame ms", "longest frame", Goal(20, "ms"))]
        figures.append(("grown by MB at most", "grown by", Goal(100, "MB")))
    else:
        arguments, figures = ["--hours", str(options.hours), "--every", "20"], []
    program = {"lateness": "lateness", "files of a save": "files_cost"}.get(name, "hours")
    found = [told_by(program, arguments, of) for of in trees]
    if name == "hours":
        grown = [later_half(rows) for rows in found]
        return [
            judged((f"{options.hours:g} h of jobs, replayed", "-", "CPU, later half"), *_two(grown), Goal(1.1, "x"))
        ]
    rows = [next((row for row in rows if row.get("scheduling") == "fifo"), rows[0]) for rows in found]
    title = f"a save of {options.files:,} files" if name == "files of a save" else "a tick, beside busy loops"
    return [judged((title, "-", word), *_two([row[key] for row in rows]), goal) for key, word, goal in figures]


def _two(values: Sequence[float]) -> tuple[float, float | None]:
    return values[0], values[1] if len(values) > 1 else None


def later_half(rows: Sequence[Mapping[str, Any]]) -> float:
    """Return what an hour of the later half of a replay cost, in CPU, against one of the first half."""
    middle = len(rows) // 2
    halves = [(rows[a], rows[b]) for a, b in ((0, middle), (middle, len(rows) - 1))]
    first, second = ((end["CPU s"] - begin["CPU s"]) / (end["hour"] - begin["hour"]) for begin, end in halves)
    return float(second / first)


def curves(guests: Sequence[Guest], work: Path, options: Any) -> list[dict[str, Any]]:
    """Return points: what each agent costs beside so many of each kind, a save of so many files, hours."""
    points = []
    crowds = [
        (f"{name} {count}", Situation(crowded(name, count), 10)) for name, counts in CURVES.items() for count in counts
    ]
    for row in in_situations(crowds, guests, work, options):
        name, _, count = row["situation"].partition(" ")
        points.append(
            {"curve": name, "x": float(count), "series": f"{row['level']} {row['tree']}", "y": row["percent"]}
        )
    for series, of in (("now", None), ("before", options.beside)):
        if series == "before" and of is None:
            continue
        rows = told_by("files_cost", ["--files", *map(str, FILES_OF_A_SAVE)], of)
        points += [{"curve": "save", "x": float(row["files"]), "series": series, "y": row["CPU s"]} for row in rows]
        rows = told_by("hours", ["--hours", str(options.hours), "--every", "20"], of)
        for begin, end in zip(rows, rows[3:], strict=False):
            cost = (end["CPU s"] - begin["CPU s"]) / (end["hour"] - begin["hour"])
            points.append({"curve": "hours", "x": end["hour"], "series": series, "y": cost})
    return points


def picture(points: Sequence[Mapping[str, Any]]) -> str:
    """Return the curves as SVG."""
    panels = []
    for name in dict.fromkeys(point["curve"] for point in points):
        mine = [point for point in points if point["curve"] == name]
        lines = {
            series: [(point["x"], point["y"]) for point in mine if point["series"] == series]
            for series in dict.fromkeys(point["series"] for point in mine)
        }
        under = TITLES.get(name, "files of a save" if name == "save" else "recorded hours")
        above = {"save": "CPU s", "hours": "CPU s an hour"}.get(name, "% of a core")
        panels.append(Panel(under, above, lines))
    return drawn(panels, "What the agent costs against what there is on the node")


def settings() -> Any:
    """Read the command line."""
    made = parser(__doc__)
    made.add_argument("--only", nargs="*", choices=[*SITUATIONS, *OTHERS], help="default: all but everyday")
    made.add_argument("--levels", nargs="*", choices=LEVELS, default=list(LEVELS))
    made.add_argument("--beside", type=Path, metavar="TREE", help="a checkout with a .venv: the agent before")
    made.add_argument("--quick", action="store_true", help="two windows of 20 s, 20 short pairs: 12 minutes in all")
    made.add_argument("--windows", type=int, default=6)
    made.add_argument("--window", type=float, default=30.0, help="seconds")
    made.add_argument("--settle", type=float, default=95.0, help="seconds before the first window, as most later")
    made.add_argument("--pairs", type=int, default=20, help="turns of the wall clock")
    made.add_argument("--job-seconds", type=float, default=4.0, help="how long its job takes")
    made.add_argument("--files", type=int, default=100_000, help="of a save that is replayed")
    made.add_argument("--hours", type=float, default=24.0, help="of jobs that are replayed")
    made.add_argument("--goals", action="store_true", help="exit code 1 where a goal is missed")
    made.add_argument("--markdown", action="store_true", help="print the goals table for docs/benchmarks.md")
    made.add_argument("--curves", type=Path, metavar="SVG", help="measure and draw curves instead")
    made.add_argument("--from", dest="earlier", type=Path, nargs="*", metavar="JSON", help="draw what these have")
    made.add_argument("--work", type=Path, help="where the jobs write; default: the temporary directory")
    options = made.parse_args()
    if options.quick:
        options.windows, options.window, options.job_seconds = 2, 20.0, 1.2
    return options


def main() -> int:
    """Measure and print; returns 1 if a goal is missed that was asked for."""
    options = settings()
    if options.earlier:
        points = [point for path in options.earlier for point in json.loads(path.read_text())["rows"]]
        options.curves.write_text(picture(points))
        return 0
    if "trace" not in options.levels:
        isolate()
    set_title("benchmark")
    chosen = options.only or [name for name in (*SITUATIONS, *OTHERS) if name != "everyday"]
    notes = [f"{name}: {value}" for name, value in machine().items()]
    rows: list[dict[str, Any]] = []
    lines: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ckptprof-bench-", dir=options.work)))
        if options.curves or {*chosen} & {*SITUATIONS, "wall clock"}:
            guests = guests_of(stack, work, options)
        if options.curves:
            points = curves(guests, work, options)
            options.curves.write_text(picture(points))
            show("guest, curves", points, as_json=options.json, notes=notes)
            return 0
        named = [(name, SITUATIONS[name]) for name in chosen if name in SITUATIONS]
        rows = in_situations(named, guests, work, options) if named else []
        lines += against_goals(rows)
        if "wall clock" in chosen:
            lines += wall_clock(guests, options)
    for name in chosen:
        if name in OTHERS and name != "wall clock":
            lines += replayed(name, options)
    if rows:
        show("guest", rows, as_json=options.json, notes=notes)
    show("guest, goals", lines, as_json=options.json)
    if options.markdown:
        print(markdown(lines))
    return int(options.goals and any(line["met"] is False for line in lines))


def markdown(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return the goals table for a page."""
    heads = list(lines[0])
    cells = [[_cell(line[head]) for head in heads] for line in lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in [heads, ["---"] * len(heads), *cells])


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "met" if value else "missed"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main())
