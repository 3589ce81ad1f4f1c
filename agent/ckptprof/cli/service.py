"""Install, show or uninstall the systemd service that monitors this host."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from ckptprof.cli import options, output
from ckptprof.cli.shared import agent_settings
from ckptprof.errors import NothingFoundError

EXAMPLES = """
# As root: print what would be done, then do it
ckptprof service install --dry-run
ckptprof service install
# Any user: whether it runs, and whether you can read its database
ckptprof service status
"""
DEGRADED = 4


DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing; print what would be done.")]


def command(
    action: Annotated[
        Literal["install", "status", "uninstall"],
        typer.Argument(metavar="install|status|uninstall", help="The action."),
    ],
    *,
    dry_run: DryRun = False,
    json: options.Json = False,
) -> int:
    """Install, show or uninstall the systemd service that monitors this host.

    `install` creates the unit, the user and the group for this installation of ckptprof, and starts the service. It
    changes nothing if that is done already, or if the settings are invalid. `uninstall` leaves the database, the
    settings, the user and the group.
    The exit code of `status` is 0 if the service runs, 4 if it is installed and does not run, 3 if it is not installed.
    """
    from ckptprof.report import document  # noqa: PLC0415 - `--help` needs none of them
    from ckptprof.report import service as rendering  # noqa: PLC0415
    from ckptprof.service.commands import environment, installation  # noqa: PLC0415
    from ckptprof.service.commands.installation import service_status  # noqa: PLC0415

    host = installation.ServiceHost()
    host.check()
    steps: list[installation.InstallStep] = []
    if action == "install":
        environment.check_environment(environment.current_environment())
        agent_settings.check()
        steps = installation.install_steps(host, environment.current_environment())
    elif action == "uninstall":
        steps = installation.uninstall_steps(host)
    if not dry_run:
        installation.run_steps(steps)
    now = service_status(host)
    outcome = rendering.ActionResult(action, dry_run, tuple(step.text for step in steps), now)
    output.write(
        document.dump(document.to_document(outcome))
        if json
        else rendering.render(outcome, width=output.terminal_width())
    )
    if action != "status" or now.active:
        return 0
    return DEGRADED if now.installed else NothingFoundError.exit_code
