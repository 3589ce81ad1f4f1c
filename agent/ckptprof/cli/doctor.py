"""Check what ckptprof can observe on this host, and name the command that adds what is missing."""

from __future__ import annotations

import os
import platform
import time
from typing import Annotated

import typer

from ckptprof import __version__
from ckptprof.cli import options, output
from ckptprof.cli.checks import host
from ckptprof.export.listening import DEFAULT_PORT
from ckptprof.report import doctor as rendering
from ckptprof.report import document
from ckptprof_collectors.kernelfs import KernelFs

EXAMPLES = """
# What is observed here, and how to add the rest
ckptprof doctor
# The same, for scripts
ckptprof doctor --json
"""
DEGRADED = 4
All = Annotated[bool, typer.Option("--all", "-a", help="One line for each check, with its full result.")]


def command(
    *, db: options.Db = None, whole: All = False, json: options.Json = False, no_color: options.NoColor = False
) -> None:
    """Check what ckptprof can observe on this host, and name the command that adds what is missing.

    It also shows what monitors this host now (the service or an agent), at which level, and why. The exit code is 4 if
    something does not work, or, for root, is missing: an ordinary user can `run` without it.
    """
    is_root = os.geteuid() == 0
    address, port = options.address(os.environ.get("CKPTPROF_LISTEN") or None)
    at = address, DEFAULT_PORT if port is None else port
    checks = host.run_checks(KernelFs(), db, at=at, now_ns=time.time_ns())
    if json:
        output.write(
            document.dump(rendering.document(checks, version=__version__, host=platform.node(), is_root=is_root))
        )
    else:
        layout = output.layout(no_color=no_color)
        whole_text = rendering.render(checks, **layout)
        output.write(whole_text if whole else rendering.groups(checks, **layout, is_root=is_root))
    if rendering.degraded(checks, is_root=is_root):
        raise typer.Exit(DEGRADED)
