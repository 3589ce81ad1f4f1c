"""`--html`: options, content and output file of an HTML page."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import msgspec
import typer

from ckptprof.cli import options, output
from ckptprof.errors import CkptprofError, PermissionDeniedError, UsageError
from ckptprof.model import Checkpoint, CheckpointQuery, Report
from ckptprof.report.clean import clean
from ckptprof_collectors.counters import LOOPBACK, TRANSFER_FIELDS

if TYPE_CHECKING:
    from ckptprof.report.html.rates import CounterSeries
    from ckptprof.store.reader import StoreReader

Html = Annotated[
    str | None,
    options.option(
        "--html",
        "[FILE]",
        "Write one HTML file that works offline in any browser. FILE ends in .html, or is - for standard output; "
        "without FILE the name is that of the command.",
    ),
]
Out = Annotated[str | None, options.option("--output", "FILE", "Output file of --html, with any suffix.", short="-o")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]
Open = Annotated[bool, typer.Option("--open", help="Open the page in a browser.")]

_POINTS = 2000  # of a series
_MINUTE = 60
_ELSEWHERE = "give a writable file"


@dataclass(frozen=True)
class HtmlPage:
    """Where to write the page of `--html`, whether over a file and whether to open it."""

    out: str | None  # a file; None: named after the command
    force: bool
    show: bool

    def write(self, reader: StoreReader, report: Report, others: Sequence[Checkpoint] = (), *, name: str) -> None:
        """Write the page of a report, its path to standard output; `others` as for outliers. Raises CkptprofError."""
        from ckptprof.report.html.page import render  # noqa: PLC0415 # Jinja2: for this only

        output.use_units()
        report = _with_devices(reader, report)
        self.put(render(report, read_counted(reader, report), others, zone=output.LocalZone()), name=name)

    def put(self, text: str, *, name: str) -> None:
        """Write a page to the requested output; its path goes to standard output. Raises CkptprofError."""
        data = text.encode("utf-8", "backslashreplace")
        if self.out == "-":
            sys.stdout.buffer.write(data)
            return
        path = Path(self.out or name)
        with create_file(str(path), force=self.force) as file:
            file.write(data)
        output.write(f"{clean(str(path))}\n")
        if self.show:
            _show(path)


def requested_page(*, html: str | None, json: bool, out: str | None, force: bool, show: bool) -> HtmlPage | None:
    """Return the page requested by these options, None for no page; raises UsageError if they conflict."""
    if html is not None and json:
        raise UsageError("--html and --json are different formats", hint="give one of them")
    if html is None and (out is not None or force or show):
        raise UsageError("--output, --force and --open need --html", hint="add --html")
    if html and out is not None:
        raise UsageError("--html FILE and --output both name a file", hint="give one of them")
    page = HtmlPage(html or out, force=force, show=show)
    if page.out == "-" and show:
        raise UsageError("--open needs a file", hint="leave - out")
    return None if html is None else page


def report_of_one(reader: StoreReader, checkpoint: Checkpoint) -> Report:
    """Return a report of this checkpoint alone."""
    around = CheckpointQuery(since_ns=checkpoint.start_ns, until_ns=max(checkpoint.end_ns, checkpoint.durable_ns or 0))
    return msgspec.structs.replace(reader.report(around), checkpoints=(checkpoint,), copies_left_out=0)


@contextmanager
def create_file(path: str, *, force: bool) -> Iterator[IO[bytes]]:
    """Create a file with mode 0600: it names processes and paths. It is deleted on errors. Raises CkptprofError."""
    flags = os.O_TRUNC if force else os.O_EXCL
    if not path.startswith("/dev/"):  # /dev/stdout is a link; elsewhere another user may have made the link
        flags |= os.O_NOFOLLOW
    name = clean(path)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flags, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
        except BaseException:
            if Path(path).is_file():  # not a device
                Path(path).unlink()
            raise
    except FileExistsError:
        if Path(path).is_dir():
            raise UsageError(f"{name} is a folder", hint="give a file in it") from None
        raise UsageError(f"{name} exists already", hint="give another name, or --force") from None
    except PermissionError as error:
        raise PermissionDeniedError(f"{name}: {error.strerror}", hint=_ELSEWHERE) from None
    except OSError as error:
        raise CkptprofError(f"{name}: {error.strerror}", hint=_ELSEWHERE) from None


def _show(path: Path) -> None:
    import webbrowser  # noqa: PLC0415 # for this only

    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")) or not webbrowser.open(
        path.resolve().as_uri()
    ):
        raise CkptprofError(
            "no browser can be opened here", hint=f"open {clean(str(path))} in a browser on another machine"
        )


def _with_devices(reader: StoreReader, report: Report) -> Report:
    """Add the devices under the slowest checkpoint, which only a single checkpoint has."""
    from ckptprof.report.html.lanes import slowest  # noqa: PLC0415 # as above

    for one in slowest(report.checkpoints, 1):
        if not one.devices and (whole := reader.checkpoint(one.id)) is not None:
            known = msgspec.structs.replace(one, devices=whole.devices)
            every = tuple(known if other is one else other for other in report.checkpoints)
            return msgspec.structs.replace(report, checkpoints=every)
    return report


def read_counted(reader: StoreReader, report: Report) -> list[CounterSeries]:
    """Return the rates of devices and links around the checkpoints."""
    from ckptprof.report.html.axis import axis_of  # noqa: PLC0415 # as above
    from ckptprof.report.html.rates import CounterSeries  # noqa: PLC0415 # as above

    axis = axis_of(report.checkpoints, report.watched)
    if axis is None:
        return []
    seconds = (axis.end_ns - axis.start_ns) // 1_000_000_000
    step = None if seconds <= _POINTS else -(-seconds // _POINTS)
    step = step if step is None or step < _MINUTE else -(-step // _MINUTE) * _MINUTE  # of roll-ups
    names = [name for name in reader.entities() if name.partition(":")[0] in TRANSFER_FIELDS and name != LOOPBACK]
    found = ((name, reader.series(name, axis.start_ns, axis.end_ns, step_seconds=step)) for name in names)
    return [CounterSeries(name, *strip, step and step * 1_000_000_000) for name, strip in found]
