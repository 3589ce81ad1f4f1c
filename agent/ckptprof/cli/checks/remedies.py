"""Remedies of `ckptprof doctor`: commands available on this host, and how to run them as root."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path

from ckptprof.errors import CkptprofError
from ckptprof.service.commands import environment
from ckptprof.service.commands.installation import ServiceHost
from ckptprof.service.commands.levels import ADD_CAPABILITIES
from ckptprof.store.location import SYSTEMD_RUNTIME, is_service_running
from ckptprof_collectors.privileges import (
    CAP_BPF,
    CAP_DAC_READ_SEARCH,
    CAP_PERFMON,
    CAP_SYS_ADMIN,
    CAP_SYS_PTRACE,
    are_in_bounding_set,
)

SETTINGS = Path("/etc/ckptprof/config.toml")  # of the service; options and the environment override it
CONTAINER_CAPABILITIES = (
    "start this container with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH for its root, which lacks them "
    "(--cap-add=SYS_PTRACE --cap-add=DAC_READ_SEARCH)"
)
_UNITS = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")


def first_available(*commands: str, otherwise: str) -> str:
    """Return the first command whose program is installed, ready to paste; else `otherwise`."""
    for command in commands:
        if shutil.which(command.split()[0], path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin") is not None:
            return as_root(command)
    return otherwise


def as_root(command: str) -> str:
    """Return the command as this user runs it as root."""
    if os.geteuid() == 0:
        return f"`{command}`"
    return f"`sudo {command}`" if shutil.which("sudo") is not None else f"`{command}` as root"


def run_as_root(arguments: str) -> str:
    """Return the command by which root runs ckptprof, from an environment that only root can change."""
    here = environment.current_environment()
    unfit = environment.unsuitable_reason if arguments.startswith("service") else environment.find_untrusted_path
    if unfit(here) is None:
        return as_root(f"{here.program} {arguments}")
    return f"as root: `{environment.install_command(arguments)}`"


def cover_host() -> str:
    """Return the remedy that covers the whole host: the service, or root."""
    if is_service_running():
        return "Nothing to do: the service already covers every user (check `watching`)"
    if os.geteuid() == 0:
        return "add it to this container or unit, whose root lacks it"
    return start_recording()


def process_access() -> str:
    """Return the remedy to read processes of all users; a container may lack the capabilities."""
    if are_in_bounding_set(CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH) or is_service_running():
        return cover_host()
    return CONTAINER_CAPABILITIES


def start_recording() -> str:
    """Return the remedy to start monitoring the whole host."""
    if any((Path(folder) / "ckptprof.service").exists() for folder in _UNITS):
        return f"start the service ({as_root('systemctl enable --now ckptprof')})"
    if SYSTEMD_RUNTIME.is_dir():
        return f"install the service ({run_as_root('service install')})"
    return f"run the agent ({run_as_root('agent')})"


def has_service_failed() -> bool:
    """Test whether the service is in the state failed."""
    try:
        return SYSTEMD_RUNTIME.is_dir() and ServiceHost().properties().get("ActiveState") == "failed"
    except CkptprofError:
        return False


def privileges() -> str:
    """Return the remedy that gives the running recorder its missing privileges."""
    if not are_in_bounding_set(CAP_BPF, CAP_PERFMON):
        return ADD_CAPABILITIES
    if is_service_running():
        return f"{run_as_root('service install')} gives the unit CAP_BPF and CAP_PERFMON"
    return f"end it and start it as root ({run_as_root('agent')})"


def tracing() -> str:
    """Return the remedy that gives this command, or the service, the privileges for tracing."""
    return cover_host() if are_in_bounding_set(CAP_BPF, CAP_PERFMON) else ADD_CAPABILITIES


def set_level() -> str:
    """Return where to change the level of the service from poll to auto."""
    restart = as_root("systemctl restart ckptprof")
    try:
        text = SETTINGS.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        text = ""
    if any(line.partition("=")[0].strip() == "level" for line in text.split("\n")):
        return f'set level = "auto" in {SETTINGS}, then {restart}'
    edit = as_root("systemctl edit ckptprof")
    return f"{edit}: set Environment=CKPTPROF_LEVEL=auto, or remove --level poll from ExecStart="


def restart() -> str:
    """Return how to restart the recorder of this host."""
    again = as_root("systemctl restart ckptprof") if is_service_running() else "end it and start it again"
    return f"{again}: tracing works for this command"


def libbpf() -> str:
    """Return how to install libbpf."""
    wheel = "install the wheel of ckptprof that contains it"
    return first_available(
        "apt install libbpf1", "dnf install libbpf", "zypper install libbpf1", "pacman -S libbpf", otherwise=wheel
    )


def py_spy() -> str:
    """Return how to install py-spy into this environment, which may lack pip (pipx, uv)."""
    if (Path(sysconfig.get_path("purelib")) / "pip").is_dir():
        return f"`{sys.executable} -m pip install py-spy`"
    return "install py-spy into the environment of ckptprof"


def setting(name: str, value: str) -> str:
    """Return how to change a kernel setting until the next boot; in a container, on its host."""
    path = "/proc/sys/" + name.replace(".", "/")
    if os.statvfs("/proc/sys").f_flag & os.ST_RDONLY:
        return f"on the host of this container, as root, write {value} into {path}"
    return first_available(f"sysctl {name}={value}", otherwise=f"as root, write {value} into {path}")


def mount(arguments: str) -> str | None:
    """Return a mount command ready to paste; None in a container that may not mount."""
    return as_root(f"mount {arguments}") if are_in_bounding_set(CAP_SYS_ADMIN) else None
