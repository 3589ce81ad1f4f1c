"""Measure the fastest rates of a directory with a short probe that cleans up after itself."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ckptprof import units
from ckptprof.cli import options, output
from ckptprof.errors import CkptprofError, StoreError, UsageError
from ckptprof.report import ceiling as rendering
from ckptprof.report import document
from ckptprof.report.clean import clean
from ckptprof.store.location import printable_path
from ckptprof_collectors.kernelfs import KernelFs

if TYPE_CHECKING:
    from ckptprof.diagnose.ceilings import Ceilings, Measure
    from ckptprof.service.probing.isolated import StopEvents
    from ckptprof.service.probing.probe_plan import ProbePlan

CONFIRM_ABOVE_BYTES = 256 << 20  # without confirmation up to here
FIRST_ANSWER_SECONDS = 10.0  # of the file system: a sleeping server wakes up
LATE_SECONDS = 120.0  # added to the time of a phase: its final sync may be slow
REPEAT_SECONDS = 1.0  # signals within it count as one: timeout(1) signals its child and the group
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([KMGT]?)(?:i?B)?\Z", re.ASCII | re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}

EXAMPLES = """
# The file system of this directory, with 256 MiB
ckptprof ceiling . --size 256M
# With the size of a real checkpoint, without confirmation
ckptprof ceiling /scratch --size 20G --yes
"""
Directory = Annotated[  # its own parser: typer would stat the path, which may hang
    Path, typer.Argument(metavar="DIR", parser=Path, help="A directory on the file system to probe.")
]
Size = Annotated[
    str, typer.Option("--size", metavar="BYTES", help="Total bytes to write at most, 32M or more: 256M, 1G, 20G.")
]
SecondsOption = Annotated[
    float,
    typer.Option(
        "--seconds",
        metavar="S",
        parser=options.number_between("--seconds", 0.001, 60),
        help="Maximum seconds per phase, up to 60.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Write more than 256 MiB without confirmation.")]


def command(
    directory: Directory,
    *,
    size: Size = "1G",
    seconds: SecondsOption = 2.0,
    yes: Yes = False,
    db: options.Db = None,
    json: options.Json = False,
    no_color: options.NoColor = False,
) -> None:
    """Measure the fastest rates of a directory with a short probe that cleans up after itself.

    The probe takes about ten seconds and at most a tenth of the free space. It writes more than 256 MiB only with --yes
    or after confirmation. The rates are stored next to the database, for later verdicts.
    """
    from ckptprof.service.probing import probe_plan  # noqa: PLC0415 # `--help` needs none of it
    from ckptprof.service.probing.isolated import run_isolated  # noqa: PLC0415 # likewise

    limit_bytes = _parse_size(size)
    if limit_bytes < probe_plan.MIN_BYTES:
        raise UsageError(f"--size {size} is too little for a measurement", hint="give 32M or more")
    plan = run_isolated(
        lambda _: probe_plan.plan_probe(directory, size_bytes=limit_bytes, phase_seconds=seconds, fs=KernelFs()),
        os.fsencode(directory),
        patience_seconds=FIRST_ANSWER_SECONDS,
    )
    _warn(plan)
    if limit_bytes > CONFIRM_ABOVE_BYTES and not yes:
        _confirm(plan)
    found = _run_probe(plan)
    stored_path = _store(db, found)
    if json:
        output.write(document.dump(rendering.document(found, saved_to=stored_path)))
    else:
        output.write(rendering.render(found, **output.layout(no_color=no_color)))


def _run_probe(plan: ProbePlan) -> Ceilings:
    """Run the probe; a signal ends it and the command, after clean-up. Raises CkptprofError."""
    from ckptprof.service.probing.isolated import NoAnswerError, StopEvents, run_isolated  # noqa: PLC0415 # likewise
    from ckptprof.service.probing.probe import probe  # noqa: PLC0415 # likewise
    from ckptprof.service.progress_line import ProgressLine  # noqa: PLC0415 # likewise

    progress = ProgressLine()
    stop = StopEvents()
    with _signals(stop) as signalled:
        try:
            found = run_isolated(
                lambda say: probe(plan, halt=stop.halt, on_row=lambda *phase: say(_phase_text(*phase))),
                plan.directory,
                on_report=progress.show,
                patience_seconds=plan.phase_seconds + LATE_SECONDS,
                stop=stop,
            )
        except NoAnswerError as error:
            left = "its files (.ckptprof-ceiling-*) may remain until the next probe"
            raise CkptprofError(f"{error}; {left}", hint=error.hint) from error
        except OSError as error:
            raise CkptprofError(f"{clean(plan.path)}: {error.strerror}") from error
        finally:
            progress.clear()
    if signalled:
        sys.stderr.write("ckptprof: interrupted; no result stored, the directory is clean\n")
        raise typer.Exit(128 + signalled[0])
    return found


def _parse_size(text: str) -> int:
    match = _SIZE.match(text.strip())
    if match is None:
        raise UsageError(f"--size {text!r} is not a size", hint="write 256M, 1G or 20GiB")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def _warn(plan: ProbePlan) -> None:
    if plan.busy is not None and plan.busy >= rendering.BUSY:
        busy = units.percent(round(plan.busy, 2))
        device = clean(str(plan.device))
        output.write(
            f"ckptprof: {device} is already {busy} busy: this will skew the result and slow other jobs\n",
            sys.stderr,
        )


def _confirm(plan: ProbePlan) -> None:
    """Ask for confirmation; raises CkptprofError for a no, UsageError without a terminal."""
    amount = f"up to {units.size(plan.size_bytes)} into {clean(plan.path)}"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            f"this would write {amount}, and there is no terminal to confirm it",
            hint=f"add --yes, or --size {CONFIRM_ABOVE_BYTES >> 20}M for less",
        )
    footprint = units.size(plan.footprint_bytes)
    output.write(f"This writes {amount}, at most {footprint} at a time, and deletes it. Continue? [y/N] ", sys.stderr)
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CkptprofError("nothing was written", hint="--size sets the amount")


@contextmanager
def _signals(stop: StopEvents) -> Iterator[list[int]]:
    """Collect signals: the first stops the probe, which cleans up; a second one, later, stops it without clean-up."""
    received: list[int] = []
    first = 0.0

    def record(number: int, _frame: object) -> None:
        nonlocal first
        now = time.monotonic()
        if not received:
            first = now
        elif now - first > REPEAT_SECONDS:
            stop.give_up.set()
        received.append(number)
        stop.halt.set()

    before = {number: signal.signal(number, record) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _phase_text(row: Measure, number: int, total: int) -> str:
    return f"{number}/{total} {rendering.label(row)}, {units.plural(row.workers, 'worker')}"


def _store(db: str | None, found: Ceilings) -> str | None:
    """Store the result and return its path; if that fails, print why and return None."""
    from ckptprof.service.probing import stored_ceilings  # noqa: PLC0415 # likewise

    try:
        path = stored_ceilings.store_ceilings(stored_ceilings.state_directory(db), found)
    except (OSError, StoreError) as error:
        reason = str(error)
        if isinstance(error, OSError) and error.filename is not None:
            reason = f"{printable_path(Path(os.fsdecode(error.filename)))}: {error.strerror}"
        output.write(f"ckptprof: the result could not be stored: {clean(reason)}\n", sys.stderr)
        return None
    return None if path is None else printable_path(path)
