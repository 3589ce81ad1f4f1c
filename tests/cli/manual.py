"""The manual page ckptprof(1), made of the commands themselves: what `--help` tells, as roff.

click-man does not load the commands of typer. `CKPTPROF_UPDATE_GOLDEN=1 pytest tests/cli/test_cli_manual.py` writes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ckptprof.cli import main as cli
from ckptprof.store.location import SERVICE_DATABASE

EXIT_CODES = (
    "0 success, 1 failure, 2 usage, 3 nothing found, 4 degraded, 5 permission, 6 database, 7 a condition of --fail-on "
    "is met, 8 a condition cannot be decided. run and capture FILE -- CMD return the exit code of the command; 126 if "
    "the command cannot be executed, 127 if it does not exist, and 128 plus the number of the signal that ended it."
)
NOTES = """
run, agent and capture take --level auto, trace or poll (or CKPTPROF_LEVEL). auto takes the best level that works, and
prints which one it is. If you ask for trace and it does not work, ckptprof names the reason and starts nothing. Where
eBPF does not work, auto polls, and ckptprof doctor names the reason, the remedy and what polling cannot show.

report, list, show, diff, plan and fleet read the databases of several nodes, too: --db several times, a folder, or a
quoted pattern. fleet reads a folder or a bucket to which nodes ship, too. Without --db, queries read your own database,
or the service's if you have none and are in the group ckptprof.

run stores in your own database, also alongside the service. That of root is the service's: while the service runs, it
stores the checkpoints of a run by root, and run only reports them at its end; run --db PATH stores them separately.
"""
ENVIRONMENT = {
    "CKPTPROF_UNITS": "decimal or binary: the units of sizes and rates.",
    "CKPTPROF_DEBUG": "1 shows where an error happened.",
    "NO_COLOR, CLICOLOR_FORCE": "Print without colours, or with them in a pipe, too.",
    "PAGER": "The program that shows what is longer than the terminal. Default: less.",
}
FILES = {
    str(SERVICE_DATABASE): "The record of the service, and of root.",
    "~/.local/state/ckptprof/ckptprof.db": "The record of other users.",
    "/etc/ckptprof/config.toml": "The settings of the agent; ckptprof config shows them.",
}


def page(version: str) -> str:
    """Return the page."""
    root = cli._build()
    lines = [f'.TH CKPTPROF 1 "" "ckptprof {version}" "User Commands"', ".ad l", ".nh", ".SH NAME"]
    first, *rest = _paragraphs(root.help)
    lines += [f"ckptprof \\- {_text(first[0].lower() + first[1:].rstrip('.'))}", ".SH SYNOPSIS"]
    lines += [".B ckptprof", ".I COMMAND", "[\\fIOPTION\\fR]... [\\fIARGUMENT\\fR]...", ".SH DESCRIPTION"]
    for paragraph in rest:
        lines += [".PP", _text(paragraph)]
    lines += [".SH COMMANDS"]
    for name in cli.COMMANDS:
        lines += _command(name)
    lines += [".SH NOTES"]
    for paragraph in _paragraphs(NOTES):
        lines += [".PP", _text(paragraph)]
    lines += [".SH EXIT STATUS", _text(EXIT_CODES), ".SH ENVIRONMENT"]
    for name, told in {**_variables(), **ENVIRONMENT}.items():
        lines += [".TP", f".B {_text(name)}", _text(told)]
    lines += [".SH FILES"]
    for name, told in FILES.items():
        lines += [".TP", f".I {_text(name)}", _text(told)]
    return "\n".join(lines) + "\n"


def _command(name: str) -> Iterator[str]:
    command = cli.load_command(name)
    usage = command.get_usage(command.make_context(f"ckptprof {name}", [], resilient_parsing=True))
    yield f".SS {name}"
    yield f".B {_text(' '.join(usage.removeprefix('Usage: ').split()))}"
    for paragraph in _paragraphs(command.help):
        yield from (".PP", _text(paragraph))
    context = command.make_context(f"ckptprof {name}", [], resilient_parsing=True)
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record is not None:
            yield from (".TP", f".B {_text(record[0])}", _text(record[1] or ""))
    yield from (".PP", "Examples:", ".PP", ".nf")
    yield from (_text(line) for line in command.epilog.strip().splitlines())
    yield ".fi"


def _paragraphs(text: str) -> list[str]:
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", text.strip())]


def _variables() -> dict[str, str]:
    """Return the environment variables that stand for options."""
    found: dict[str, list[str]] = {}
    for name in cli.COMMANDS:
        for parameter in cli.load_command(name).params:
            variable: Any = getattr(parameter, "envvar", None)
            for one in [variable] if isinstance(variable, str) else variable or ():
                found.setdefault(one, []).append(parameter.opts[0])
    return {one: f"As {min(options)}." for one, options in sorted(found.items())}


def _text(text: str) -> str:
    """Return text that roff takes for nothing else."""
    escaped = (
        text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("^", "\\(ha").replace("~", "\\(ti")
    )
    return f"\\&{escaped}" if escaped.startswith((".", "\\(aq")) else escaped
