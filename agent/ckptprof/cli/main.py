"""The `ckptprof` command: dispatch to subcommands; the one place where errors become messages and exit codes.

A subcommand's module is imported only when it runs, so that `--help` and `version` start within a few hundredths of a
second. rich is not used: it costs 160 ms to import and reads square brackets in names as markup.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer
import typer.core
import typer.main

from ckptprof import __version__, units
from ckptprof.cli.options import TYPED
from ckptprof.errors import CkptprofError, UsageError
from ckptprof.report.clean import clean
from ckptprof.report.hints import set_databases, with_databases

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

# Each command is the function `command` in the module of its name; the text equals the first line of that module (a
# test checks it). The order is that of `--help`.
COMMANDS = {
    "run": "Run a command and report every checkpoint that it and its descendants save or restore.",
    "agent": "Monitor the whole host in the foreground and record every checkpoint, as the service does.",
    "live": "Live view: saves in progress, disk throughput, recent checkpoints.",
    "report": "Report the recorded checkpoints, what they cost and what limited them.",
    "list": "List checkpoints, one line each, for pipes and grep.",
    "show": "Show one checkpoint: what limited it, what it cost, what to do; --all shows every detail.",
    "diff": "Compare two runs, before and after a change, and show differences larger than noise.",
    "export": "Export checkpoints for spreadsheets, notebooks, DuckDB, TensorBoard or Perfetto.",
    "sql": "Query the database in SQL: SELECT only, with limits on time and rows.",
    "fleet": "Questions across nodes: stragglers, cost, limits, each job's newest step, collisions, odd nodes.",
    "ship": "Ship recorded checkpoints to a folder or a bucket, where `ckptprof fleet` covers all nodes.",
    "plan": "Plan how often to save and on what storage, from recorded checkpoints or your own figures.",
    "doctor": "Check what ckptprof can observe on this host, and name the command that adds what is missing.",
    "service": "Install, show or uninstall the systemd service that monitors this host.",
    "config": "Show each setting of the agent, its value and its source.",
    "ceiling": "Measure the fastest rates of a directory with a short probe that cleans up after itself.",
    "capture": "Record raw samples into a file, which `ckptprof replay` reads here or elsewhere.",
    "replay": "Replay a recording through the same detection and report its checkpoints.",
    "version": "Print the version.",
    "dashboards": "Write the Grafana dashboards, their provisioning file and the Prometheus alert rules into a folder.",
    "completion": "Print the completion script of a shell.",
}
# Words of other tools, and the command that does the same here
_SUGGESTIONS = (
    ("json csv dump parquet", "`ckptprof export` writes checkpoints as CSV, Parquet and the like"),
    (
        "query select sqlite sqlite3",
        "`ckptprof sql 'SELECT * FROM v_checkpoints'` queries the database, `ckptprof sql` lists its tables",
    ),
    (
        "status state ps",
        "`ckptprof service status` shows whether the service runs, `ckptprof doctor` checks this host",
    ),
    (
        "start enable install setup init",
        "`ckptprof run -- CMD` profiles one command, `ckptprof service install` the whole host, as root",
    ),
    (
        "stop disable uninstall remove",
        "Ctrl-C ends `ckptprof agent`, and `ckptprof service uninstall` the service, as root",
    ),
    (
        "record rec save",
        "`ckptprof run -- CMD` records the checkpoints of a command, `ckptprof capture FILE` raw samples",
    ),
    ("profile exec launch wrap trace attach perf", "`ckptprof run -- CMD` profiles one command"),
    (
        "top watch monitor tail follow",
        "`ckptprof live` shows saves in progress, `ckptprof agent` monitors this host",
    ),
    (
        "daemon serve server metrics exporter prometheus",
        "`ckptprof agent` monitors this host, prints each checkpoint and serves metrics",
    ),
    ("stats stat statistics summary summarize result results", "`ckptprof report` summarises the recorded checkpoints"),
    ("ls log logs history checkpoints events saves restores", "`ckptprof list` prints one line for each checkpoint"),
    (
        "info inspect view get cat describe explain why detail details",
        "`ckptprof show ID` shows one checkpoint, `ckptprof list` prints the ids",
    ),
    ("compare cmp", "`ckptprof diff A B` compares two runs"),
    ("check test health verify selftest", "`ckptprof doctor` checks what ckptprof can observe on this host"),
    ("bench benchmark probe speed fio", "`ckptprof ceiling DIR` measures the fastest rates of a directory"),
    ("advise advice recommend interval estimate", "`ckptprof plan` computes how often to save, and on what storage"),
    ("play load open import analyze analyse", "`ckptprof replay FILE` reports the checkpoints in a recording"),
    ("completions complete autocomplete", "`ckptprof completion bash` prints the completion script of a shell"),
    ("help man usage", "`ckptprof --help` lists the commands, `ckptprof report --help` describes one"),
)
_CLOSE = 0.8  # of `difflib`: `reprot` is as close to `report`, `restore` is not
HELP: dict[str, Any] = {"help_option_names": ["-h", "--help"]}
# `run`: what follows the command's name is the command's, options included
CONTEXT_SETTINGS: dict[str, dict[str, Any]] = {"run": {"allow_interspersed_args": False}}
INTERRUPTED = 130  # 128 + SIGINT, and
BROKEN_PIPE = 141  # 128 + SIGPIPE, as shells count
DEBUG = "CKPTPROF_DEBUG"
_COMPLETE = "_CKPTPROF_COMPLETE"
# typer carries its own click since 0.26 and used the installed one before; this is UsageError in either
_ArgumentError: type[Exception] = typer.BadParameter.__bases__[0]


def _with_bool_default(help_option: Any) -> Any:
    """Set a bool default for --help: typer 0.29 imports pydantic (0.1 s) to convert None."""
    if help_option is not None and help_option.default is None:
        help_option.default = False
    return help_option


class CliCommand(typer.core.TyperCommand):
    """A command whose --help ends with examples to paste."""

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option with a bool default."""
        return _with_bool_default(super().get_help_option(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, and record them as typed: `run` needs the position of `--`."""
        ctx.meta[TYPED] = tuple(args)
        if any(one.name == "html" for one in self.params):  # its value is FILE where the next word can be nothing else
            is_only = not any(one.param_type_name == "argument" for one in self.params)
            file = re.compile(r"-|[^-].*" if is_only else r"-|[^-].*\.html", re.DOTALL)
            following = [*args[1:], "--"]
            args = [
                f"{word}=" if word == "--html" and not file.fullmatch(following[at]) else word
                for at, word in enumerate(args)
            ]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; raises UsageError for an unknown CKPTPROF_UNITS, even if the command prints no sizes."""
        units.check(os.environ.get(units.VARIABLE))
        return super().invoke(ctx)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 # click's signature
        """Write the examples without wrapping them."""
        with formatter.section("Examples"):
            for line in (self.epilog or "").strip().splitlines():
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")


class CliGroup(typer.core.TyperGroup):
    """A group that knows its commands by name and imports one only to run it."""

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option with a bool default."""
        return _with_bool_default(super().get_help_option(ctx))

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 # click's signature
        """Return the command names in the order of `--help`."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 # click's signature
        """Return the command; None for an unknown name."""
        return load_command(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 # click's signature
        """Write the list without importing the commands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the first argument names; raises UsageError with a suggestion."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise UsageError(f"there is no command {args[0]!r}", hint=_suggest_command(args))
        return super().resolve_command(ctx, args)


def _nearest(typed: str, names: Iterable[str]) -> str | None:
    from difflib import get_close_matches  # noqa: PLC0415 # for errors only

    return next(iter(get_close_matches(typed, names, n=1, cutoff=_CLOSE)), None)


def _suggest_command(typed: Sequence[str]) -> str:
    name = typed[0]
    for names, suggestion in _SUGGESTIONS:
        if name.lower() in names.split():
            return suggestion
    if near := _nearest(name, COMMANDS):
        return f"did you mean `ckptprof {near}`?"
    if name and shutil.which(name) is not None:
        return f"`ckptprof run -- {shlex.join(typed)}` profiles that command"
    return "`ckptprof --help` lists the commands"


def load_command(name: str) -> Any:
    """Import a subcommand and return it as a click command."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    module = importlib.import_module(f"ckptprof.cli.{name}")
    settings = HELP | CONTEXT_SETTINGS.get(name, {})
    app.command(name, cls=CliCommand, help=module.command.__doc__, epilog=module.EXAMPLES, context_settings=settings)(
        module.command
    )
    return typer.main.get_command(app)


def _print_version(value: bool) -> None:  # noqa: FBT001 # typer calls it with the option's value
    if value:
        sys.stdout.write(f"ckptprof {__version__}\n")
        raise typer.Exit


def _root(
    context: typer.Context,
    version: Annotated[  # noqa: FBT002 # an option
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Record every checkpoint that training saves or restores, from outside the training code.

    Start with: ckptprof run -- python train.py

    Sizes and rates are decimal (MB is 10^6 bytes); CKPTPROF_UNITS=binary prints MiB.
    """
    del version
    if context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")


def _build() -> Any:
    app = typer.Typer(
        cls=CliGroup,
        rich_markup_mode=None,
        invoke_without_command=True,
        add_completion=_COMPLETE in os.environ,
        context_settings=HELP,
    )
    app.callback()(_root)
    return typer.main.get_command(app)


def main(arguments: Sequence[str]) -> int:
    """Run one command line, print its error if any, and return the exit code."""
    try:
        return _invoke(list(arguments))
    except KeyboardInterrupt:
        _print_error("interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # the reader closed the pipe (`| head`): not an error
        return BROKEN_PIPE
    except CkptprofError as error:
        _print_error(str(error), hint=error.hint, error=error)
        return error.exit_code
    except _ArgumentError as error:
        _print_error(_message(error), hint=_help_hint(error, arguments))
        return 2
    except Exception as error:  # noqa: BLE001 # the last resort: one line instead of a traceback
        text = str(error) or "no message"
        _print_error(f"{type(error).__name__}: {text}", hint=f"set {DEBUG}=1 to see where it happened", error=error)
        return 1
    finally:
        set_databases()
        _drain(sys.stdout)
        _drain(sys.stderr)


def _invoke(arguments: list[str]) -> int:
    command = _build()
    if _COMPLETE in os.environ:
        command.main(args=arguments, prog_name="ckptprof")
    try:
        with command.make_context("ckptprof", arguments) as context:
            result = command.invoke(context)
    except typer.Exit as stop:
        with contextlib.suppress(BrokenPipeError):  # what it ends early with matters more
            sys.stdout.flush()
        return stop.exit_code
    sys.stdout.flush()
    return result if isinstance(result, int) else 0


def _drain(stream: TextIO | None) -> None:
    """Flush a stream, into /dev/null if it fails: a flush that fails at interpreter exit makes the exit code 120."""
    if stream is None:
        return
    try:
        stream.flush()
    except (OSError, ValueError, CkptprofError):
        with contextlib.suppress(OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            if null != stream.fileno():  # equal if stdout was closed
                os.dup2(null, stream.fileno())
                os.close(null)


def _message(error: Any) -> str:
    for part in getattr(error.__cause__, "errors", list)():  # of pydantic, by which typer 0.29 parses
        error.message = str(part.get("ctx", {}).get("error", part["msg"]))
    error.possibilities = None  # of options: the hint has the nearest
    text = " ".join(error.format_message().split())  # choices have lines
    return text[:1].lower() + text[1:].rstrip(".")


def _help_hint(error: Any, arguments: Sequence[str]) -> str:
    named = " ".join(["ckptprof", *(name for name in arguments[:1] if name in COMMANDS)])
    path, params = (named, ()) if error.ctx is None else (error.ctx.command_path, error.ctx.command.params)
    options = {name.strip("-"): name for one in params for name in one.opts}
    typed = getattr(error, "option_name", "").strip("-")
    if typed not in options and (near := _nearest(typed, options)):
        return f"did you mean {options[near]}?"
    return f"`{path} --help` lists the options"


def _print_error(message: str, *, hint: str | None = None, error: BaseException | None = None) -> None:
    lines = [f"ckptprof: {clean(message)}"]
    if hint is not None:
        lines.append(f"hint: {with_databases(clean(hint))}")
    if error is not None and os.environ.get(DEBUG):
        import traceback  # noqa: PLC0415 # rarely wanted

        lines += [clean(line) for part in traceback.format_exception(error) for line in part.splitlines()]
    text = "\n".join(lines) + "\n"
    with contextlib.suppress(OSError, ValueError, AttributeError):  # stderr is closed: only the exit code reports it
        sys.stderr.write(text.encode(sys.stderr.encoding or "ascii", "backslashreplace").decode())
        sys.stderr.flush()


class _StandardOutput(io.FileIO):
    """Descriptor 1; a failed write raises CkptprofError, a closed pipe BrokenPipeError."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Write, and return the number of bytes; raises CkptprofError."""
        try:
            return super().write(data)
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                raise
            hint = "the output is incomplete: write it to another file"
            raise CkptprofError(f"standard output: {error.strerror}", hint=hint) from error


def entry() -> None:
    """Run the command line: the entry point of the console script."""
    # A closed stream becomes /dev/null; otherwise the next open file would get its descriptor. Children still find it
    # closed: Python opens files close-on-exec
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 # until we end
    if isinstance(out := sys.__stdout__, io.TextIOWrapper):  # it is not closed
        raw = io.BufferedWriter(_StandardOutput(out.fileno(), "w", closefd=False))
        sys.stdout = io.TextIOWrapper(raw, out.encoding, out.errors, None, out.line_buffering, out.write_through)
    exit_code = main(sys.argv[1:])
    gc.freeze()  # without it the collector scans every module at exit: a fifth of the time of a report
    sys.exit(exit_code)
