"""The environment that this program runs from, and whether a service with capabilities may run from it too.

Who can write to it could have the service, which sees every user's processes, run what he likes. So it is root's, and
nobody else writes to it or to a folder above it. And everybody reads it: the service's user is no owner of it.
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

_PLAIN = re.compile(r"[\w./+@:,=-]+", re.ASCII)  # what means nothing else in a unit


@dataclass(frozen=True)
class Environment:
    """An interpreter and the script that it runs."""

    python: Path
    program: Path

    @property
    def command(self) -> str:
        """Return the beginning of a command line: -I keeps the environment and users' packages out."""
        return f"{self.python} -I {self.program}"


def here() -> Environment:
    """Return the one that runs this."""
    return Environment(Path(sys.executable), Path(sysconfig.get_path("scripts")) / "ckptprof")


def fit(environment: Environment) -> None:
    """Raise CkptprofError if the service cannot, or must not, run from this environment."""
    reason = refused(environment)
    if reason is not None:
        hint = f"as root: `{elsewhere('service install')}`"
        raise CkptprofError(f"a service must not run from this environment: {reason}", hint=hint)


def changeable(environment: Environment) -> str | None:
    """Return where others than root can change this environment, from which root must run nothing then; else None."""
    return next((found for path in _parts(environment) if (found := unfit(path, read_by_all=False)) is not None), None)


def refused(environment: Environment) -> str | None:
    """Return why the service cannot, or must not, run from this environment; None: all is well."""
    reason = next((found for path in _parts(environment) if (found := unfit(path)) is not None), None)
    if reason is None and not _PLAIN.fullmatch(environment.command.replace(" -I ", "")):
        reason = f"{environment.program} contains characters that a unit does not accept"
    return reason


def elsewhere(arguments: str) -> str:
    """Return the line by which root makes an environment of his own, and runs this program out of it."""
    make = "python3 -m venv /opt/ckptprof && /opt/ckptprof/bin/pip install"
    return f"{make} {origin()} && /opt/ckptprof/bin/ckptprof {arguments}"


def unfit(path: Path, *, read_by_all: bool = True) -> str | None:
    """Return why not root alone has a say in a path, or not everybody can read it; None: all is well."""
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


def origin() -> str:
    """Return what pip was told when this was installed: the name, or the path of a checkout or wheel (PEP 610)."""
    try:
        text = importlib.metadata.distribution("ckptprof").read_text("direct_url.json")
        url = urlsplit(json.loads(text or "{}").get("url", ""))
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return "ckptprof"
    path = unquote(url.path)
    return path if url.scheme == "file" and _PLAIN.fullmatch(path) else "ckptprof"


def _parts(environment: Environment) -> list[Path]:
    return [environment.python, environment.program, *_code()]


def _code() -> Iterable[Path]:
    folders = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    packages = {os.path.dirname(module.__file__ or "") for module in (ckptprof, ckptprof_collectors)}  # noqa: PTH120
    return [Path(folder) for folder in sorted(folders | packages) if os.path.isdir(folder)]  # noqa: PTH112
