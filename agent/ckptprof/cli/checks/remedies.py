"""Remedies that `ckptprof doctor` can name: commands that this host has, and what it takes to be root here."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path

from ckptprof.errors import CkptprofError
from ckptprof.service.commands import environment
from ckptprof.service.commands.installation import Host
from ckptprof.service.commands.levels import CONTAINER
from ckptprof.store.location import SYSTEMD, service_runs
from ckptprof_collectors.privileges import (
    CAP_BPF,
    CAP_DAC_READ_SEARCH,
    CAP_PERFMON,
    CAP_SYS_ADMIN,
    CAP_SYS_PTRACE,
    within_bounds,
)

SETTINGS = Path("/etc/ckptprof/config.toml")  # what the service reads; an option or the environment wins over it
SEES_OTHERS = (
    "start this container with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH for its root, who has not both "
    "(--cap-add=SYS_PTRACE --cap-add=DAC_READ_SEARCH)"
)
_UNITS = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")


def first_there(*commands: str, otherwise: str) -> str:
    """Return the first command whose program is on this host, as a person may paste it; else `otherwise`."""
    for command in commands:
        if shutil.which(command.split()[0], path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin") is not None:
            return as_root(command)
    return otherwise


def as_root(command: str) -> str:
    """Return how this user runs a command as root."""
    if os.geteuid() == 0:
        return f"`{command}`"
    return f"`sudo {command}`" if shutil.which("sudo") is not None else f"`{command}` as root"


def by_root(arguments: str) -> str:
    """Return how root runs this program: out of an environment that none but root can change, made if need be."""
    here = environment.here()
    unfit = environment.refused if arguments.startswith("service") else environment.changeable
    if unfit(here) is None:
        return as_root(f"{here.program} {arguments}")
    return f"as root: `{environment.elsewhere(arguments)}`"


def as_service() -> str:
    """Return what makes the whole host visible: the service, as far as it is here, or root."""
    if service_runs():
        return "nothing by this user: the service watches the jobs of all users (the check `watching`)"
    if os.geteuid() == 0:
        return "give it to this container or unit, which has less than root has elsewhere"
    return as_watcher()


def sight() -> str:
    """Return what lets the processes of all users be read: a container may have nobody who can."""
    if within_bounds(CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH) or service_runs():
        return as_service()
    return SEES_OTHERS


def as_watcher() -> str:
    """Return what watches the whole host from now on."""
    if any((Path(folder) / "ckptprof.service").exists() for folder in _UNITS):
        return f"start the service ({as_root('systemctl enable --now ckptprof')})"
    if SYSTEMD.is_dir():
        return f"install the service ({by_root('service install')})"
    return f"watch it as root ({by_root('agent')})"


def service_failed() -> bool:
    """Return whether systemd gave the service up."""
    try:
        return SYSTEMD.is_dir() and Host().state().get("ActiveState") == "failed"
    except CkptprofError:
        return False


def privileges() -> str:
    """Return what gives who watches this host the privileges that its unit or its user lacks."""
    if not within_bounds(CAP_BPF, CAP_PERFMON):
        return CONTAINER
    if service_runs():
        return f"{by_root('service install')} gives the unit CAP_BPF and CAP_PERFMON"
    return f"end it and start it as root ({by_root('agent')})"


def tracing() -> str:
    """Return what gives this command, or who watches in its place, the privileges of a trace."""
    return as_service() if within_bounds(CAP_BPF, CAP_PERFMON) else CONTAINER


def level() -> str:
    """Return how the service is asked for another level than polling: where that stands."""
    restart = as_root("systemctl restart ckptprof")
    try:
        text = SETTINGS.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        text = ""
    if any(line.partition("=")[0].strip() == "level" for line in text.split("\n")):
        return f'set level = "auto" in {SETTINGS}, then {restart}'
    edit = as_root("systemctl edit ckptprof")
    return f"{edit}: set Environment=CKPTPROF_LEVEL=auto, or take --level poll out of ExecStart="


def restart() -> str:
    """Return how who watches this host begins again."""
    again = as_root("systemctl restart ckptprof") if service_runs() else "end it and start it again"
    return f"{again}: what this command tried works"


def libbpf() -> str:
    """Return how libbpf comes onto this host."""
    wheel = "install the wheel of ckptprof that contains it"
    return first_there(
        "apt install libbpf1", "dnf install libbpf", "zypper install libbpf1", "pacman -S libbpf", otherwise=wheel
    )


def py_spy() -> str:
    """Return how py-spy comes into this environment, which may have no pip of its own (pipx, uv)."""
    if (Path(sysconfig.get_path("purelib")) / "pip").is_dir():
        return f"`{sys.executable} -m pip install py-spy`"
    return "install py-spy into the environment of ckptprof"


def setting(name: str, value: str) -> str:
    """Return how a setting of the kernel is changed until the next boot: a container shows it and cannot set it."""
    path = "/proc/sys/" + name.replace(".", "/")
    if os.statvfs("/proc/sys").f_flag & os.ST_RDONLY:
        return f"on the host of this container, as root, write {value} into {path}"
    return first_there(f"sysctl {name}={value}", otherwise=f"as root, write {value} into {path}")


def parameter(module: str, name: str, value: str) -> str:
    """Return how a parameter of a loaded module is set until the next boot, and from then on."""
    for_good = f"`options {module.replace('_', '-')} {name}={value}` in /etc/modprobe.d keeps it"
    return f"as root, write {value} into /sys/module/{module}/parameters/{name}; {for_good}"


def mount(arguments: str) -> str | None:
    """Return how something is mounted, as a person may paste it; None in a container that may mount nothing."""
    return as_root(f"mount {arguments}") if within_bounds(CAP_SYS_ADMIN) else None
