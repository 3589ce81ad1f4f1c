"""Options that several commands share."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Annotated, Any, Literal

import typer

from ckptprof.errors import UsageError
from ckptprof.report import hints

TYPED = "ckptprof.typed"  # in the `meta` of a context: the words after the command's name, as they were typed
DATABASE = "CKPTPROF_DB"  # environment variables
LARGEST = 2**63 - 1  # number that the database takes


def given(name: str, metavar: str, text: str, *, short: str | None = None, **more: Any) -> Any:
    """Return an option whose default, if it has one, stands in its text."""
    names = (name,) if short is None else (name, short)
    return typer.Option(*names, metavar=metavar, help=text, show_default=False, **more)


def argument(metavar: str, text: str, **more: Any) -> Any:
    """Return an argument whose default, if it has one, stands in its text."""
    return typer.Argument(metavar=metavar, help=text, show_default=False, **more)


def whole(name: str, *, least: int, most: int = LARGEST) -> Callable[[str], int]:
    """Return a parser of whole numbers; it raises UsageError, which calls the option or argument by `name`."""

    def parser(typed: str) -> int:
        try:
            number = int(typed)
        except ValueError:
            number = None
        if number is None or number < least:
            raise UsageError(f"{name} must be a whole number from {least}, not {typed!r}")
        if number > most:
            raise UsageError(f"{name} must be at most {most}, not {typed!r}")
        return number

    return parser


def text(name: str) -> Callable[[str], str]:
    """Return a parser of texts; it raises UsageError for bytes that are no UTF-8, as only a path may have."""

    def parser(typed: str) -> str:
        try:
            typed.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"{name} is not UTF-8", hint="only a path may have other bytes") from error
        return typed

    return parser


def between(name: str, least: float, most: float | None = None) -> Callable[[str | float], float]:
    """Return a parser of finite numbers; it raises UsageError, which calls the option by `name`."""
    bounds = f"from {least:g}" if most is None else f"from {least:g} to {most:g}"

    def parser(typed: str | float) -> float:
        try:
            number = float(typed)
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or number < least or (most is not None and number > most):
            raise UsageError(f"{name} must be a number {bounds}, not {str(typed)!r}")
        return number

    return parser


def named_database(context: typer.Context, path: str | None) -> str | None:
    """Return the path as it was given, and let hints name it; raises UsageError for an empty one."""
    if path == "":
        raise UsageError("--db is empty", hint="give the path of a file, or leave --db out")
    source = context.get_parameter_source("db")
    is_typed = source is not None and source.name == "COMMANDLINE"  # an environment stays
    hints.about(*([path] if is_typed and path is not None else []))
    return path


def named_databases(context: typer.Context, paths: list[str] | None) -> list[str] | None:
    """Return what was given, None for nothing, and let hints name it; raises UsageError for an empty one."""
    source = context.get_parameter_source("db")
    if source is not None and source.name == "ENVIRONMENT":
        paths = [os.environ[DATABASE]]  # one: it is no list, and may have spaces
    if not paths:
        hints.about()
        return None
    if "" in paths:
        raise UsageError("--db is empty", hint="give the path of a file, or leave --db out")
    hints.about(*(paths if source is not None and source.name == "COMMANDLINE" else ()))
    return paths


def address(listen: str | None) -> tuple[str, int | None]:
    """Return the host and the port of HOST:PORT, the port None where nothing is given; raises UsageError."""
    if listen is None:
        return "127.0.0.1", None
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"--listen {listen!r} is no address", hint="give HOST:PORT, as in 127.0.0.1:12578")
    return host.strip("[]") or "127.0.0.1", int(port)


_DEFAULT = (
    "Default: /var/lib/ckptprof/ckptprof.db for root, ~/.local/state/ckptprof/ckptprof.db for others, and the first "
    "for those who have none there and may read it."
)
Db = Annotated[str | None, given("--db", "PATH", f"The database. {_DEFAULT}", envvar=DATABASE, callback=named_database)]
Dbs = Annotated[
    list[str] | None,
    given(
        "--db",
        "PATH",
        "The database; given several times, a folder, or a quoted pattern such as 'nodes/*.db', the databases of "
        "several nodes, or that of a server (postgresql+psycopg://ROLE@HOST/DATABASE), whose checkpoints are told as "
        f"those of their jobs. {_DEFAULT}",
        envvar=DATABASE,
        callback=named_databases,
    ),
]
Level = Annotated[
    Literal["auto", "trace", "poll"],
    typer.Option(
        "--level",
        envvar="CKPTPROF_LEVEL",
        help="How to observe: `trace` counts each call by eBPF, `poll` reads counters now and then, "
        "`auto` takes the best level that works here.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
NoColor = Annotated[bool, typer.Option("--no-color", help="Print without colours, as NO_COLOR=1 does.")]
NoPager = Annotated[bool, typer.Option("--no-pager", help="Do not use a pager on a terminal.")]
Gpus = Annotated[
    int | None,
    given(
        "--gpus",
        "N",
        "GPUs that wait while training is blocked. Default: those that NVML shows, or one for each rank.",
        parser=whole("--gpus", least=1),
    ),
]
