"""The output of `ckptprof service`: the actions, and the status of the service."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ckptprof.bounds import one_of
from ckptprof.report.clean import clean
from ckptprof.report.table import facts, wrap

_LEFT = "/var/lib/ckptprof (records), /etc/ckptprof (settings), the user and group ckptprof, your own drop-ins"


class ServiceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of the service."""

    installed: bool
    enabled: bool  # it starts with the host
    active: bool
    state: str  # systemd's word
    status: str | None  # status line of the service
    unit: str | None
    runs: str | None  # the command
    from_here: bool | None  # it runs from the same environment as this command
    outdated: bool  # it was started before the version of that environment was installed
    user: bool  # user and group are there
    database: str
    readable: bool  # by the user


class ActionResult(msgspec.Struct, frozen=True):
    """The result of an action."""

    action: Annotated[str, one_of("install", "status", "uninstall")]
    dry_run: bool
    steps: tuple[str, ...]  # done, or to be done
    service: ServiceStatus


def render(outcome: ActionResult, *, width: int) -> str:
    """Return the result as text that ends in a newline."""
    lines = []
    if outcome.action != "status":
        word = "to do: " if outcome.dry_run else "done: "
        steps = [f"{word}{clean(step)}" for step in outcome.steps] or [f"nothing to {outcome.action}"]
        lines = [line for step in steps for line in wrap(step, width)]
        lines.append("")
    lines += facts(_status_facts(outcome.service), width, colour=False)
    if outcome.action == "uninstall" and not outcome.dry_run:
        lines += ["", *wrap(f"Not removed: {_LEFT}.", width)]
    return "\n".join([*lines, ""])


def _status_facts(service: ServiceStatus) -> list[tuple[str, str]]:
    if not service.installed:
        return [("service", "not installed")]
    starts = "starts at boot" if service.enabled else "does not start at boot"
    message = (
        f", {service.status}" if service.status and service.active else ""
    )  # systemd keeps the last status of a stopped service
    state = f"{service.state}{message}; {starts}"
    pairs = [("service", state)]
    if not service.active:
        pairs.append(("", "`journalctl -u ckptprof` shows why it is not running"))
    pairs.append(("unit", str(service.unit)))
    pairs.append(("program", str(service.runs)))
    if service.from_here is False:
        pairs.append(
            ("", "another environment than that of this command; `ckptprof service install` switches to this one")
        )
    if service.outdated:
        pairs.append(
            ("", "still running the version from before the last upgrade; as root run `systemctl restart ckptprof`")
        )
    if not service.user:
        pairs.append(("user", "the user ckptprof or its group is missing; `ckptprof service install` creates them"))
    pairs.append(("database", service.database))
    if service.active and not service.readable:
        pairs.append(("", "you cannot read it: only root and the group ckptprof can"))
    return [(key, clean(text)) for key, text in pairs]
