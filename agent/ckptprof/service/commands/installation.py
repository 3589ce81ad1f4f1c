"""`ckptprof service`: unit, user and group, for the environment that this program runs from.

A step writes or removes a file, or runs a program of systemd. What is already in place is no step, so a second
`install` does nothing. The unit is that of `systemd/`, with the paths of this environment.
"""

from __future__ import annotations

import grp
import os
import pwd
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from ckptprof.assets import asset
from ckptprof.errors import CkptprofError, PermissionDeniedError
from ckptprof.report.service import ServiceStatus
from ckptprof.service.commands.environment import Environment, current_environment
from ckptprof.store.location import SERVICE_DATABASE, SYSTEMD_RUNTIME, is_service_running
from ckptprof_collectors.abandoned import run_program

NAME = "ckptprof"
START_SECONDS = 150.0  # the unit allows 90, after up to 40 to stop the previous process
_PROPERTIES = (
    "LoadState", "ActiveState", "UnitFileState", "StatusText", "FragmentPath", "NeedDaemonReload", "ExecStart",
    "MainPID",
)  # fmt: skip
_EXEC = re.compile(r"(?m)^ExecStart=.*$")
_EXEC_OF_UNIT = re.compile(r"(?m)^(ExecStart=).* (agent .*)$")  # interpreter and program are replaced


@dataclass(frozen=True)
class InstallStep:
    """One step; `text` is its command line if it runs a program."""

    text: str
    act: Callable[[], object] = field(compare=False, repr=False)


class ServiceHost:
    """State of systemd and the user tables, and the calls that change it."""

    def __init__(self, root: Path = Path("/")) -> None:
        """`root`: the folder for the files, another one in tests."""
        self.unit = root / "etc/systemd/system/ckptprof.service"
        self.sysusers = root / "etc/sysusers.d/ckptprof.conf"
        self.config = root / "etc/ckptprof/config.toml"

    def check(self) -> None:
        """Raise CkptprofError if this host does not run systemd."""
        if not SYSTEMD_RUNTIME.is_dir():
            raise CkptprofError(
                "this host does not run systemd", hint="`ckptprof agent` watches until Ctrl-C, without a service"
            )

    def run_systemd(self, *command: str) -> str:
        """Run a program of systemd and return its output; raises CkptprofError with its error message."""
        try:
            done = run_program(command, timeout_seconds=START_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CkptprofError(f"`{' '.join(command)}`: {error}") from error
        if done.returncode != 0:
            message = (done.stderr or done.stdout).strip().partition("\n")[0]
            raise CkptprofError(
                f"`{' '.join(command)}` failed: {message}", hint=f"`journalctl -u {NAME}` shows details"
            )
        return done.stdout

    def properties(self) -> dict[str, str]:
        """Properties that systemd has of the service."""
        try:
            output = self.run_systemd("systemctl", "show", f"--property={','.join(_PROPERTIES)}", NAME)
        except CkptprofError:
            if os.geteuid() == 0:
                raise
            return self._properties_from_files()  # a user's systemctl needs D-Bus, which a minimal host lacks
        return dict(line.split("=", 1) for line in output.splitlines() if "=" in line)

    def _properties_from_files(self) -> dict[str, str]:
        if not self.unit.exists():
            return {"LoadState": "not-found", "ActiveState": "inactive"}
        wanted = self.unit.parent / "multi-user.target.wants" / self.unit.name
        line = _EXEC.search(self.unit.read_text(encoding="utf-8", errors="replace"))
        return {
            "LoadState": "loaded",
            "ActiveState": "active" if is_service_running() else "inactive",
            "UnitFileState": "enabled" if os.path.lexists(wanted) else "disabled",
            "FragmentPath": str(self.unit),
            "ExecStart": f"argv[]={line[0].partition('=')[2]} ;" if line is not None else "",
        }

    def has_user(self) -> bool:
        """Whether both user and group exist."""
        try:
            pwd.getpwnam(NAME)
            grp.getgrnam(NAME)
        except KeyError:
            return False
        return True


def install_steps(host: ServiceHost, environment: Environment) -> list[InstallStep]:
    """Return the steps for a service that runs from this environment, and starts with the host."""
    unit = _EXEC_OF_UNIT.sub(rf"\1{environment.command} \2", asset("systemd/ckptprof.service").read_text())
    steps = list(_write_step(host.sysusers, asset("systemd/ckptprof.sysusers.conf").read_text()))
    if not os.path.lexists(host.config):  # an existing file belongs to the administrator
        steps += _write_step(host.config, asset("systemd/config.toml").read_text())
    if not host.has_user():
        steps.append(_call_step(host, "systemd-sysusers", str(host.sysusers)))
    state = host.properties()
    unit_steps = list(_write_step(host.unit, unit))
    steps += unit_steps
    if unit_steps or state.get("NeedDaemonReload") == "yes":
        steps.append(_call_step(host, "systemctl", "daemon-reload"))
    if state.get("UnitFileState") != "enabled":
        steps.append(_call_step(host, "systemctl", "enable", "--quiet", NAME))
    if state.get("ActiveState") != "active":
        steps.append(_call_step(host, "systemctl", "start", NAME))
    elif unit_steps or is_outdated(state):
        steps.append(_call_step(host, "systemctl", "restart", NAME))
    return steps


def installed_at() -> float:
    """Time of installation of this version, in seconds since the epoch; raises OSError."""
    return Path(__file__).stat().st_ctime


def is_outdated(state: Mapping[str, str]) -> bool:
    """Whether the service was started before this version was installed; False if unknown."""
    try:
        return psutil.Process(int(state.get("MainPID", "0"))).create_time() < installed_at()
    except (psutil.Error, OSError, ValueError):
        return False


def uninstall_steps(host: ServiceHost) -> list[InstallStep]:
    """Return the steps that remove the service; the record, the settings, user, group and drop-ins stay."""
    state = host.properties()
    steps = []
    if host.unit.exists() and (state.get("UnitFileState") == "enabled" or state.get("ActiveState") != "inactive"):
        steps.append(_call_step(host, "systemctl", "disable", "--quiet", "--now", NAME))
    removed = [_remove_step(path) for path in (host.unit, host.sysusers) if path.exists()]
    steps += removed
    if removed:
        steps.append(_call_step(host, "systemctl", "daemon-reload"))
    if state.get("ActiveState") == "failed":
        steps.append(_call_step(host, "systemctl", "reset-failed", NAME))
    return steps


def run_steps(steps: list[InstallStep]) -> None:
    """Run the steps in order; raises PermissionDeniedError, and CkptprofError at the first failure."""
    if steps and os.geteuid() != 0:
        raise PermissionDeniedError("only root can change services", hint="--dry-run lists the steps")
    try:
        for step in steps:
            step.act()
    except OSError as error:
        raise CkptprofError(f"{step.text}: {error.strerror or error}") from error


def _write_step(path: Path, text: str) -> Iterator[InstallStep]:
    if path.exists() and path.read_text(encoding="utf-8", errors="replace") == text:
        return

    def write() -> None:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.new")  # systemd never reads half of it
        new.write_text(text, encoding="utf-8")
        new.chmod(0o644)
        new.replace(path)

    yield InstallStep(f"{'replace' if path.exists() else 'write'} {path}", write)


def _remove_step(path: Path) -> InstallStep:
    return InstallStep(f"remove {path}", lambda: path.unlink(missing_ok=True))


def _call_step(host: ServiceHost, *command: str) -> InstallStep:
    return InstallStep(" ".join(command), lambda: host.run_systemd(*command))


def service_status(host: ServiceHost) -> ServiceStatus:
    """Status of the service; raises CkptprofError if systemd does not answer."""
    state = host.properties()
    runs = state.get("ExecStart", "").partition("argv[]=")[2].partition(" ;")[0] or None
    from_here = None if runs is None else runs.startswith(f"{current_environment().command} ")
    return ServiceStatus(
        installed=state.get("LoadState") == "loaded",
        enabled=state.get("UnitFileState") == "enabled",
        active=state.get("ActiveState") == "active",
        state=state.get("ActiveState", "unknown"),
        status=state.get("StatusText") or None,
        unit=state.get("FragmentPath") or None,
        runs=runs,
        from_here=from_here,
        outdated=bool(from_here) and state.get("ActiveState") == "active" and is_outdated(state),
        user=host.has_user(),
        database=str(SERVICE_DATABASE),
        readable=os.access(SERVICE_DATABASE, os.R_OK),
    )
