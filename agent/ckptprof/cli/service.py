"""Install, show or uninstall the systemd service that watches this host."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from ckptprof.cli import options, output
from ckptprof.cli.shared import settings
from ckptprof.errors import NothingFoundError

EXAMPLES = """
# As root: print what would be done, then do it
ckptprof service install --dry-run
ckptprof service install
# Anybody: whether it runs, and whether you can read its record
ckptprof service status
"""
DEGRADED = 4


DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing; print what would be done.")]


def command(
    action: Annotated[
        Literal["install", "status", "uninstall"],
        typer.Argument(metavar="install|status|uninstall", help="What to do."),
    ],
    *,
    dry_run: DryRun = False,
    json: options.Json = False,
) -> int:
    """Install, show or uninstall the systemd service that watches this host.

    `install` puts the unit, the user and the group in place for the environment that this program runs from, and starts
    the service; a second time it does nothing, and so it does with settings that the service would refuse. `uninstall`
    leaves the record, the settings, the user and the group.
    The exit code of `status` is 0 if the service runs, 4 if it is installed and does not run, 3 if it is not installed.
    """
    from ckptprof.report import document  # noqa: PLC0415 - `--help` needs none of them
    from ckptprof.report import service as rendering  # noqa: PLC0415
    from ckptprof.service.commands import environment, installation  # noqa: PLC0415
    from ckptprof.service.commands.installation import standing  # noqa: PLC0415

    host = installation.Host()
    host.check()
    steps: list[installation.Step] = []
    if action == "install":
        environment.fit(environment.here())
        settings.check()
        steps = installation.to_install(host, environment.here())
    elif action == "uninstall":
        steps = installation.to_uninstall(host)
    if not dry_run:
        installation.do(steps)
    now = standing(host)
    told = rendering.Outcome(action, dry_run, tuple(step.text for step in steps), now)
    output.write(document.dump(document.of(told)) if json else rendering.render(told, width=output.terminal_width()))
    if action != "status" or now.active:
        return 0
    return DEGRADED if now.installed else NothingFoundError.exit_code
