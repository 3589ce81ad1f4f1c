"""Measure the best rates that a directory reaches, by a short probe that leaves nothing behind."""

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
from ckptprof.store.location import shown
from ckptprof_collectors.kernelfs import KernelFs

if TYPE_CHECKING:
    from ckptprof.diagnose.ceilings import Ceilings, Measure
    from ckptprof.service.probing.apart import Stop
    from ckptprof.service.probing.planning import Plan

ASK_FROM_BYTES = 256 << 20  # as much is written without asking
FIRST_ANSWER_SECONDS = 10.0  # of its file system: a server that is asleep wakes up
LATE_SECONDS = 120.0  # beyond its time: a phase syncs what it wrote, over a slow way too
AGAIN_SECONDS = 1.0  # signals that come together are one: timeout(1) sends it to its child and to their group
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([KMGT]?)(?:i?B)?\Z", re.ASCII | re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}

EXAMPLES = """
# The file system below this directory, with 256 MiB
ckptprof ceiling . --size 256M
# With as much as a real checkpoint has, without a question
ckptprof ceiling /scratch --size 20G --yes
"""
Directory = Annotated[  # by a parser of its own: typer would look at the path, and that may hang
    Path, typer.Argument(metavar="DIR", parser=Path, help="A directory on the file system to probe.")
]
Size = Annotated[
    str, typer.Option("--size", metavar="BYTES", help="How much to write in all, at most; 32M or more: 256M, 1G, 20G.")
]
SecondsOption = Annotated[
    float,
    typer.Option(
        "--seconds",
        metavar="S",
        parser=options.between("--seconds", 0.001, 60),
        help="How many seconds a phase takes, at most; up to 60.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Write more than 256 MiB without asking.")]


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
    """Measure the best rates that a directory reaches, by a short probe that leaves nothing behind.

    The probe takes about ten seconds and at most a tenth of the free space. It writes more than 256 MiB only with
    --yes, or after you agree when it asks. The rates are kept beside the database, for later verdicts.
    """
    from ckptprof.service.probing import planning  # noqa: PLC0415 # `--help` needs none of it
    from ckptprof.service.probing.apart import apart  # noqa: PLC0415 # likewise

    most = _bytes(size)
    if most < planning.LEAST_BYTES:
        raise UsageError(f"--size {size} is too little to tell anything", hint="give 32M or more")
    plan = apart(
        lambda _: planning.plan(directory, size_bytes=most, phase_seconds=seconds, fs=KernelFs()),
        os.fsencode(directory),
        patience_seconds=FIRST_ANSWER_SECONDS,
    )
    _warn(plan)
    if most > ASK_FROM_BYTES and not yes:
        _ask(plan)
    found = _probed(plan)
    kept = _keep(db, found)
    if json:
        output.write(document.dump(rendering.document(found, kept=kept)))
    else:
        output.use_units()
        output.write(rendering.render(found, width=output.terminal_width(), colour=output.use_colour(off=no_color)))


def _probed(plan: Plan) -> Ceilings:
    """Return what the probe found; a signal ends it early, and then the command, when all is cleaned up."""
    from ckptprof.service.probing.apart import NoAnswerError, Stop, apart  # noqa: PLC0415 # likewise
    from ckptprof.service.probing.probe import probe  # noqa: PLC0415 # likewise
    from ckptprof.service.progress import Progress  # noqa: PLC0415 # likewise

    progress = Progress()
    stop = Stop()
    with _signals(stop) as signalled:
        try:
            found = apart(
                lambda say: probe(plan, halt=stop.halt, tell=lambda *phase: say(_working_on(*phase))),
                plan.directory,
                heard=progress.tell,
                patience_seconds=plan.phase_seconds + LATE_SECONDS,
                stop=stop,
            )
        except NoAnswerError as error:
            left = "what was written there (.ckptprof-ceiling-*) may be left until the next probe"
            raise CkptprofError(f"{error}; {left}", hint=error.hint) from error
        except OSError as error:
            raise CkptprofError(f"{clean(plan.path)}: {error.strerror}") from error
        finally:
            progress.clear()
    if signalled:
        sys.stderr.write("ckptprof: interrupted; nothing was kept, and nothing was left in the directory\n")
        raise typer.Exit(128 + signalled[0])
    return found


def _bytes(text: str) -> int:
    match = _SIZE.match(text.strip())
    if match is None:
        raise UsageError(f"--size {text!r} is no size", hint="write 256M, 1G or 20GiB")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def _warn(plan: Plan) -> None:
    if plan.busy is not None and plan.busy >= rendering.BUSY:
        busy = units.percent(round(plan.busy, 2))
        output.write(
            f"ckptprof: {clean(str(plan.device))} is {busy} busy already: the probe will be disturbed, and disturb\n",
            sys.stderr,
        )


def _ask(plan: Plan) -> None:
    """Go on if a person agrees; raises UsageError where there is nobody to ask."""
    amount = f"up to {units.size(plan.size_bytes)} into {clean(plan.path)}"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            f"this would write {amount}, and there is no terminal to ask on",
            hint=f"add --yes, or --size {ASK_FROM_BYTES >> 20}M for less",
        )
    taken = units.size(plan.footprint_bytes)
    output.write(f"This writes {amount}, {taken} of it at a time, and removes it. Go on? [y/N] ", sys.stderr)
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CkptprofError("nothing was written", hint="--size changes how much is")


@contextmanager
def _signals(stop: Stop) -> Iterator[list[int]]:
    """Note the signals that end the probe, which cleans up by itself; with a second one, a while later, it may not."""
    noted: list[int] = []
    first = 0.0

    def note(number: int, _frame: object) -> None:
        nonlocal first
        now = time.monotonic()
        if not noted:
            first = now
        elif now - first > AGAIN_SECONDS:
            stop.give_up.set()
        noted.append(number)
        stop.halt.set()

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _working_on(row: Measure, number: int, total: int) -> str:
    return f"{number}/{total} {rendering.label(row)}, {units.plural(row.workers, 'worker')}"


def _keep(db: str | None, found: Ceilings) -> str | None:
    """Keep what was found; that it cannot be is told, and no reason not to print it."""
    from ckptprof.service.probing import kept  # noqa: PLC0415 # likewise

    try:
        path = kept.keep(kept.state_directory(db), found)
    except (OSError, StoreError) as error:
        why = str(error)
        if isinstance(error, OSError) and error.filename is not None:
            why = f"{shown(Path(os.fsdecode(error.filename)))}: {error.strerror}"
        output.write(f"ckptprof: what was found could not be kept: {clean(why)}\n", sys.stderr)
        return None
    return None if path is None else shown(path)
