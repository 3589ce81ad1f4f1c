"""Options that several commands share."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Annotated, Any, Literal

import typer

from ckptprof.errors import UsageError
from ckptprof.report import hints

TYPED = "ckptprof.typed"  # key of the context's `meta`: the arguments as typed
DATABASE = "CKPTPROF_DB"  # environment variables
LARGEST = 2**63 - 1  # integer in the database


def option(name: str, metavar: str, text: str, *, short: str | None = None, **more: Any) -> Any:
    """Return an option; its help text includes the default."""
    names = (name,) if short is None else (name, short)
    return typer.Option(*names, metavar=metavar, help=text, show_default=False, **more)


def argument(metavar: str, text: str, **more: Any) -> Any:
    """Return an argument; its help text includes the default."""
    return typer.Argument(metavar=metavar, help=text, show_default=False, **more)


def whole_number(name: str, *, least: int, most: int = LARGEST) -> Callable[[str], int]:
    """Return a parser of whole numbers; it raises UsageError with the option's or argument's `name`."""

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
    """Return a parser of text; it raises UsageError for bytes that are not UTF-8, which only paths may contain."""

    def parser(typed: str) -> str:
        try:
            typed.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"{name} is not UTF-8", hint="only paths may contain other bytes") from error
        return typed

    return parser


def number_between(name: str, least: float, most: float | None = None) -> Callable[[str | float], float]:
    """Return a parser of finite numbers; it raises UsageError with the option's `name`."""
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


def check_database_path(context: typer.Context, path: str | None) -> str | None:
    """Return the path unchanged, and register it for hints; raises UsageError for an empty one."""
    if path == "":
        raise UsageError("--db is empty", hint="give the path of a file, or leave --db out")
    source = context.get_parameter_source("db")
    is_typed = source is not None and source.name == "COMMANDLINE"  # the environment applies to the hinted command, too
    hints.set_databases(*([path] if is_typed and path is not None else []))
    return path


def check_database_paths(context: typer.Context, paths: list[str] | None) -> list[str] | None:
    """Return the paths, None without any, and register them for hints; raises UsageError for an empty one."""
    source = context.get_parameter_source("db")
    if source is not None and source.name == "ENVIRONMENT":
        paths = [os.environ[DATABASE]]  # a single path, which may contain spaces
    if not paths:
        hints.set_databases()
        return None
    if "" in paths:
        raise UsageError("--db is empty", hint="give the path of a file, or leave --db out")
    hints.set_databases(*(paths if source is not None and source.name == "COMMANDLINE" else ()))
    return paths


def address(listen: str | None) -> tuple[str, int | None]:
    """Parse HOST:PORT; the port is None if `listen` is None. Raises UsageError."""
    if listen is None:
        return "127.0.0.1", None
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"--listen {listen!r} is not an address", hint="give HOST:PORT, as in 127.0.0.1:12578")
    return host.strip("[]") or "127.0.0.1", int(port)


_DEFAULT = (
    "Default: /var/lib/ckptprof/ckptprof.db for root, ~/.local/state/ckptprof/ckptprof.db for others, or the "
    "first for users who may read it and have none of their own."
)
Db = Annotated[
    str | None, option("--db", "PATH", f"The database. {_DEFAULT}", envvar=DATABASE, callback=check_database_path)
]
Dbs = Annotated[
    list[str] | None,
    option(
        "--db",
        "PATH",
        "The database; given several times, a folder, or a quoted pattern such as 'nodes/*.db', the databases of "
        f"several nodes. Checkpoints of several nodes are merged by job. {_DEFAULT}",
        envvar=DATABASE,
        callback=check_database_paths,
    ),
]
Level = Annotated[
    Literal["auto", "trace", "poll"],
    typer.Option(
        "--level",
        envvar="CKPTPROF_LEVEL",
        help="How to observe: `trace` counts every call with eBPF, `poll` samples counters, "
        "`auto` uses the best level that works here.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
NoColor = Annotated[bool, typer.Option("--no-color", help="Print without colours, as NO_COLOR=1 does.")]
NoPager = Annotated[bool, typer.Option("--no-pager", help="Do not use a pager on a terminal.")]
Gpus = Annotated[
    int | None,
    option(
        "--gpus",
        "N",
        "Number of GPUs that wait while training is blocked. Default: as NVML shows, or one per rank.",
        parser=whole_number("--gpus", least=1),
    ),
]
