"""Real work for as long as you like under an agent of each level: nothing of it may be taken for a checkpoint.

    python benchmarks/false_alarms.py --minutes 30 --level trace,poll --beside-job

Copies, downloads, installs, builds, databases, logs, data sets, core dumps and the like (tests/e2e/everyday/) are done
again and again in random order. Whatever is reported as a save or a restore is a false alarm, and the exit code is 1;
of kind `copy` it is listed beside. With --beside-job a training job saves and restores all the time, first alone, then
beside the work: what is reported of it must be the same, as measured against its own log. Needs 6 GB of disk. Others'
checkpoints on this host are listed, and are false alarms with --whole-host only.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from contenders import ROOT
from figures import machine, parser, show

sys.path.insert(0, str(ROOT / "tests" / "e2e"))
sys.path.insert(0, str(ROOT / "examples"))

from everyday.jobbeside import JobBeside, otherwise, summary
from everyday.rounds import ELSEWHERE, Finding, Office
from everyday.store import make_store
from everyday.table import TASKS
from everyday.task import Task

DISK = Path("/var/tmp")  # noqa: S108 - a folder of its own is made in it; /tmp may be memory


def chosen(names: list[str] | None) -> tuple[list[Task], list[str]]:
    """Return the tasks to do, and what is left out for want of a program."""
    wanted = [task for task in TASKS if names is None or any(name in task.name for name in names)]
    lacking = [f"not done, {task.missing} is not installed: {task.name}" for task in wanted if task.missing]
    return [task for task in wanted if not task.missing], lacking


def alone(office: Office, job: JobBeside, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Let the job train with nothing beside; return its figures per level."""
    with office.watched():
        job.start()
        time.sleep(60 * options.alone_minutes)
        job.end()
        time.sleep(options.settle)
    return {level: summary(job.compared(office.findings(level))) for level in office.levels}


def beside(office: Office, job: JobBeside | None, tasks: list[Task], options: argparse.Namespace) -> None:
    """Do the work, with the job beside if there is one."""
    with office.watched():
        if job is not None:
            job.start()
        try:
            office.work(tasks, at_once=options.at_once, seconds=60 * options.minutes, seed=options.seed)
        finally:
            if job is not None:
                job.end()
        time.sleep(options.settle)


def sorted_out(
    office: Office, job: JobBeside | None, *, whole_host: bool
) -> tuple[list[Finding], list[Finding], list[Finding]]:
    """Return false alarms, copies and what others did on this host, of all levels."""
    alarms: list[Finding] = []
    copies: list[Finding] = []
    others: list[Finding] = []
    for level in office.levels:
        for finding in office.findings(level):
            if job is None or not job.owns(finding):
                (others if finding.task == ELSEWHERE and not whole_host else alarms).append(finding)
        copies += [finding for finding in office.findings(level, "copy") if finding.task != ELSEWHERE]
    return alarms, copies, others


def rows(office: Office, alarms: list[Finding], copies: list[Finding]) -> list[dict[str, Any]]:
    """Return a line per task: how often it was done, and what was reported of it at each level."""
    times = Counter(done.task for done in office.done)
    failed = Counter(done.task for done in office.done if done.failure)
    names = [*times, *sorted({finding.task for finding in [*alarms, *copies]} - set(times))]
    table = []
    for name in names:
        row: dict[str, Any] = {"task": name, "times": times[name], "failed": failed[name]}
        for level in office.levels:
            row[f"{level} alarms"] = sum(finding.task == name and finding.level == level for finding in alarms)
            row[f"{level} copies"] = sum(finding.task == name and finding.level == level for finding in copies)
        table.append(row)
    return table


def costs(office: Office) -> list[str]:
    """Return what each agent cost while the work was done."""
    return [
        f"{level}: {100 * office.cpu_seconds[level] / office.seconds:.1f} % of one core, "
        f"{office.memory_bytes[level] / 1e6:.0f} MB resident at the end"
        for level in office.levels
    ]


def markdown(table: list[dict[str, Any]]) -> str:
    """Return rows with the same keys as a table of Markdown."""
    if not table:
        return ""
    lines = [
        list(table[0]),
        ["---"] * len(table[0]),
        *(["-" if v is None else str(v) for v in row.values()] for row in table),
    ]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def settings() -> argparse.Namespace:
    """Read the command line."""
    arguments = parser(__doc__)
    arguments.add_argument("--minutes", type=float, default=30)
    arguments.add_argument("--level", default="trace,poll", help="levels, with commas; an agent for each")
    arguments.add_argument("--beside-job", action="store_true")
    arguments.add_argument("--settle", type=float, default=15, help="seconds that agents go on after the work")
    arguments.add_argument("--alone-minutes", type=float, default=2, help="of the job before the work begins")
    arguments.add_argument("--at-once", type=int, default=2, help="tasks at the same time")
    arguments.add_argument("--tasks", nargs="*", help="only those with one of these words in their name")
    arguments.add_argument("--whole-host", action="store_true", help="count what is reported of other folders, too")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--dir", type=Path, default=DISK, help="on which disk to work")
    arguments.add_argument("--table", type=Path, help="write the result here as Markdown")
    options = arguments.parse_args()
    if not set(options.level.split(",")) <= {"trace", "poll"}:
        arguments.error("--level takes trace, poll or both with a comma")
    return options


def main() -> None:
    """Measure and print; raises SystemExit with 1 at any false alarm or if the job was reported otherwise."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the agents end, the folder goes
    options = settings()
    tasks, notes = chosen(options.tasks)
    started, levels = time.time(), tuple(options.level.split(","))
    with tempfile.TemporaryDirectory(prefix="everyday-", dir=options.dir, ignore_cleanup_errors=True) as directory:
        office, before = Office(Path(directory), levels), Office(Path(directory) / "alone", levels)
        office.root.chmod(0o755)  # PostgreSQL gives up root
        make_store(office.store)
        quiet: dict[str, dict[str, Any]] = {}
        job = JobBeside(Path(directory) / "training") if options.beside_job else None
        if job is not None:
            before.root.mkdir()
            quiet = alone(before, JobBeside(before.root / "training"), options)
        beside(office, job, tasks, options)
        alarms, copies, others = sorted_out(office, job, whole_host=options.whole_host)
        table = rows(office, alarms, copies)
        compared = {level: job.compared(office.findings(level)) for level in levels} if job else {}
        busy = {level: summary(comparison) for level, comparison in compared.items()}
        notes += [f"job beside, {level}: {line}" for level in compared for line in otherwise(compared[level])]
    of_job = [
        {"level": level, "beside": what, **figures}
        for level in levels
        for what, figures in (("nothing", quiet.get(level)), ("the work", busy.get(level)))
        if figures
    ]
    failures = [f"failed: {done.task}: {done.failure}" for done in office.done if done.failure]
    notes += [*sorted(set(failures)), *costs(office), *(f"FALSE ALARM {finding}" for finding in alarms)]
    notes += [f"copy {finding}" for finding in copies] + [f"not counted: {finding}" for finding in others]
    notes.append(f"{len(office.done)} pieces of work in {time.time() - started:.0f} s, {len(alarms)} false alarms")
    show("false_alarms", table, as_json=options.json, notes=notes)
    if of_job:
        show("false_alarms of the job beside", of_job, as_json=options.json)
    if options.table:
        facts = ", ".join(f"{name} {value}" for name, value in machine().items())
        text = "\n\n".join([markdown(table), markdown(of_job), "\n".join(f"- {note}" for note in notes), facts])
        options.table.write_text(text + "\n", encoding="utf-8")
    wrong = any(row["missed"] or row["invented"] or row["wrong_framework"] for row in of_job)
    if alarms or wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
