"""The environment that this program runs from, and whether a service with capabilities may run from it too.

A user who can write to it controls the service, which reads the processes of all users. So only root may write to it or
to a folder above it. All users can read it: the service's user does not own it.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import stat
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import ckptprof
import ckptprof_collectors
from ckptprof.errors import CkptprofError

_UNQUOTED = re.compile(r"[\w./+@:,=-]+", re.ASCII)  # no special meaning in a unit


@dataclass(frozen=True)
class Environment:
    """An interpreter and the script that it runs."""

    python: Path
    program: Path

    @property
    def command(self) -> str:
        """Start of a command line; -I ignores PYTHON* variables and users' packages."""
        return f"{self.python} -I {self.program}"


def current_environment() -> Environment:
    """Return the environment of this process."""
    return Environment(Path(sys.executable), Path(sysconfig.get_path("scripts")) / "ckptprof")


def check_environment(environment: Environment) -> None:
    """Raise CkptprofError if the service cannot, or must not, run from this environment."""
    reason = unsuitable_reason(environment)
    if reason is not None:
        hint = f"as root: `{install_command('service install')}`"
        raise CkptprofError(f"a service must not run from this environment: {reason}", hint=hint)


def find_untrusted_path(environment: Environment) -> str | None:
    """Return why root must not run this environment: where other users can change it; None if only root can."""
    return next(
        (reason for path in _paths(environment) if (reason := untrusted_reason(path, read_by_all=False)) is not None),
        None,
    )


def unsuitable_reason(environment: Environment) -> str | None:
    """Return why the service cannot, or must not, run from this environment; None if it can."""
    reason = next(
        (unsuitable for path in _paths(environment) if (unsuitable := untrusted_reason(path)) is not None), None
    )
    if reason is None and not _UNQUOTED.fullmatch(environment.command.replace(" -I ", "")):
        reason = f"{environment.program} contains characters that a unit does not accept"
    return reason


def install_command(arguments: str) -> str:
    """Command line that installs this program for root and runs it."""
    make = "python3 -m venv /opt/ckptprof && /opt/ckptprof/bin/pip install"
    return f"{make} {installed_from()} && /opt/ckptprof/bin/ckptprof {arguments}"


def untrusted_reason(path: Path, *, read_by_all: bool = True) -> str | None:
    """Return why other users can change a path, or not all can read it; None if it is fine."""
    real = path.resolve()
    for place in dict.fromkeys((real, *real.parents, path, *path.parents)):
        try:
            state = place.stat()
        except OSError as error:
            return f"{place}: {error.strerror}"
        if state.st_uid != 0 or state.st_mode & 0o022:
            return f"users other than root can write to {place}"
        needed = 0o005 if stat.S_ISDIR(state.st_mode) else 0o004
        if read_by_all and state.st_mode & needed != needed:
            return f"not all users can read {place}"
    return None


def installed_from() -> str:
    """Return the argument of `pip install` for this installation: a name, checkout or wheel (PEP 610)."""
    try:
        text = importlib.metadata.distribution("ckptprof").read_text("direct_url.json")
        url = urlsplit(json.loads(text or "{}").get("url", ""))
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return "ckptprof"
    path = unquote(url.path)
    return path if url.scheme == "file" and _UNQUOTED.fullmatch(path) else "ckptprof"


def _paths(environment: Environment) -> list[Path]:
    return [environment.python, environment.program, *_code_folders()]


def _code_folders() -> Iterable[Path]:
    folders = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    packages = {os.path.dirname(module.__file__ or "") for module in (ckptprof, ckptprof_collectors)}  # noqa: PTH120
    return [Path(folder) for folder in sorted(folders | packages) if os.path.isdir(folder)]  # noqa: PTH112
