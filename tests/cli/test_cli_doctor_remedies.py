"""Remedies name commands that are there: on hosts with other package managers, without sudo, without systemd."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ckptprof.cli.checks import remedies
from ckptprof.service.commands import environment, levels
from ckptprof.service.commands.environment import Environment
from ckptprof.store import location
from ckptprof_collectors.privileges import CAP_SYS_PTRACE

ROOTS = Environment(Path("/usr/bin/python3"), Path("/usr/bin/ckptprof"))
WATCHERS = ("agent", "agent", "service install")
SAID = {
    "cover_host": remedies.cover_host,
    "libbpf": remedies.libbpf,
    "privileges": remedies.privileges,
    "tracing": remedies.tracing,
    "restart": remedies.restart,
    "py_spy": remedies.py_spy,
    "setting": lambda: remedies.setting("kernel.yama.ptrace_scope", "0"),
}


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the set of the programs that this host has, to be filled."""
    there: set[str] = set()
    monkeypatch.setattr(shutil, "which", lambda name, **_: f"/usr/bin/{name}" if name in there else None)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(environment, "current_environment", lambda: ROOTS)
    monkeypatch.setattr(remedies, "are_in_bounding_set", lambda *_: True)
    return there


@pytest.fixture(autouse=True)
def of_root_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run from an environment that none but root can change, wherever this checkout is."""
    monkeypatch.setattr(environment, "untrusted_reason", lambda *_, **__: None)


@pytest.mark.parametrize("name", SAID)
@pytest.mark.parametrize("has", ["", "sudo", "dnf", "sudo apt sysctl", "zypper"])
def test_each_command_is_there(name: str, has: str, only: set[str]) -> None:
    """The first word of whatever stands in backticks, sudo or a path."""
    only |= set(has.split())
    for command in re.findall("`([^`]+)`", SAID[name]()):
        words = command.removeprefix("sudo ").split()
        assert words[0] in only | {"python3"} or Path(words[0]).is_absolute() or words[0] == "ckptprof", command
        assert "sudo" in only or not command.startswith("sudo ")


def test_libbpf_comes_from_this_hosts_packages(only: set[str]) -> None:
    """Else what is needed is said in words."""
    assert remedies.libbpf() == "install the wheel of ckptprof that contains it"
    only |= {"dnf", "sudo"}
    assert remedies.libbpf() == "`sudo dnf install libbpf`"


def test_the_service_is_named_as_far_as_it_is_there(
    only: set[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In the foreground without systemd; installed, started, or running already; root can only ask its container."""
    monkeypatch.setattr(location, "UNIT_INVOCATION", tmp_path / "running")
    monkeypatch.setattr(remedies, "SYSTEMD_RUNTIME", tmp_path / "systemd")
    monkeypatch.setattr(remedies, "_UNITS", (tmp_path,))
    assert remedies.cover_host().endswith("/ckptprof agent` as root)")
    (tmp_path / "systemd").mkdir()
    assert "/ckptprof service install` as root" in remedies.cover_host()
    (tmp_path / "ckptprof.service").touch()
    assert "systemctl enable --now ckptprof" in remedies.cover_host()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "container" in remedies.cover_host()
    (tmp_path / "running").touch()
    assert "the service already covers every user" in remedies.cover_host()
    assert remedies.restart().startswith("`systemctl restart ckptprof`")
    assert "service install` gives the unit" in remedies.privileges()


@pytest.mark.parametrize("others", ["users other than root can write to /home/nina", None])
def test_root_is_told_to_run_nothing_that_others_can_change(
    others: str | None, only: set[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A virtual environment in a home is its user's: root makes one of his own."""
    only |= {"sudo"}
    monkeypatch.setattr(environment, "untrusted_reason", lambda *_, **__: others)
    monkeypatch.setattr(location, "UNIT_INVOCATION", tmp_path / "running")
    monkeypatch.setattr(remedies, "SYSTEMD_RUNTIME", tmp_path / "systemd")
    monkeypatch.setattr(remedies, "_UNITS", (tmp_path,))
    said = [remedies.start_recording(), remedies.privileges()]
    (tmp_path / "systemd").mkdir()
    said.append(remedies.start_recording())

    program = "/opt/ckptprof/bin/ckptprof" if others else "sudo /usr/bin/ckptprof"
    assert [f"{program} {arguments}`" in text for text, arguments in zip(said, WATCHERS, strict=True)] == [True] * 3
    assert all(("python3 -m venv /opt/ckptprof" in text) == bool(others) for text in said)


def test_what_a_container_may_not_do_is_not_told(only: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by its root either: settings are of the host, mounts and capabilities of who started it."""
    only |= {"sudo", "sysctl", "mount"}
    monkeypatch.setattr(os, "statvfs", lambda _: type("Mounted", (), {"f_flag": os.ST_RDONLY}))
    monkeypatch.setattr(remedies, "are_in_bounding_set", lambda *_: False)

    assert remedies.setting("kernel.yama.ptrace_scope", "0").startswith("on the host of this container, ")
    assert remedies.mount("-t securityfs none /sys/kernel/security") is None
    assert remedies.privileges() == remedies.tracing() == levels.ADD_CAPABILITIES


@pytest.mark.parametrize("uid", [0, 1000])
def test_nobody_is_sent_to_a_root_who_may_not_either(
    uid: int, only: set[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In a container as Docker makes it: what it lacks is named as an option to paste, to root and to others."""
    monkeypatch.setattr(location, "UNIT_INVOCATION", tmp_path / "running")
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    there = remedies.process_access()
    monkeypatch.setattr(remedies, "are_in_bounding_set", lambda *asked: CAP_SYS_PTRACE not in asked)

    assert there == remedies.cover_host()
    assert remedies.process_access() == remedies.CONTAINER_CAPABILITIES
    assert "--cap-add=SYS_PTRACE --cap-add=DAC_READ_SEARCH" in remedies.process_access()


@pytest.mark.capabilities("PERFMON")
def test_what_a_container_bounds_is_seen() -> None:
    """By the kernel's own word; a capability that there is not is not bounded."""
    code = "from ckptprof_collectors.privileges import *; print(*map(are_in_bounding_set, (CAP_PERFMON, CAP_BPF, 200)))"
    bounded = ["setpriv", "--bounding-set", "-bpf", sys.executable, "-c", code]

    assert subprocess.run(bounded, capture_output=True, text=True, check=True).stdout == "True False True\n"
