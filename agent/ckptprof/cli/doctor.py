"""Check what ckptprof can see on this host, and name the command that adds what is missing."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

import typer

from ckptprof import __version__
from ckptprof.cli import options, output
from ckptprof.cli.checks import host
from ckptprof.export.http import DEFAULT_PORT
from ckptprof.report import doctor as rendering
from ckptprof.report import document
from ckptprof.store.location import path_to_read
from ckptprof_collectors.kernelfs import KernelFs

EXAMPLES = """
# What is seen here, and what to do about the rest
ckptprof doctor
# What is not as it could be, for scripts
ckptprof doctor --json
"""
DEGRADED = 4


def command(*, db: options.Db = None, json: options.Json = False, no_color: options.NoColor = False) -> None:
    """Check what ckptprof can see on this host, and name the command that adds what is missing.

    It asks who watches this host now, the service or an agent, at which level it does, and why. The exit code is 4 if
    something that ckptprof uses is missing (warn) or does not work (fail).
    """
    where = path_to_read() if db is None else db
    address, port = options.address(os.environ.get("CKPTPROF_LISTEN") or None)
    at = address, DEFAULT_PORT if port is None else port
    checks = host.everything(KernelFs(), where, run=Path("/run"), at=at, now_ns=time.time_ns())
    if json:
        output.write(document.dump(rendering.document(checks, version=__version__, host=platform.node())))
    else:
        output.use_units()
        output.write(rendering.render(checks, width=output.terminal_width(), colour=output.use_colour(off=no_color)))
    if rendering.degraded(checks):
        raise typer.Exit(DEGRADED)
