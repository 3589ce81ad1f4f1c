"""Remedies name commands that are there: on hosts with other package managers, without sudo, without systemd."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from ckptprof.cli.checks import remedies
from ckptprof.store import location

SAID = {
    "as_service": remedies.as_service,
    "libbpf": remedies.libbpf,
    "privileges": remedies.privileges,
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
    return there


@pytest.mark.parametrize("name", SAID)
@pytest.mark.parametrize("has", ["", "sudo", "dnf", "sudo apt sysctl", "zypper"])
def test_each_command_is_there(name: str, has: str, only: set[str]) -> None:
    """The first word of whatever stands in backticks, sudo or a path."""
    only |= set(has.split())
    for command in re.findall("`([^`]+)`", SAID[name]()):
        words = command.removeprefix("sudo ").split()
        assert words[0] in only or Path(words[0]).is_absolute() or words[0] == "ckptprof", command
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
    monkeypatch.setattr(location, "RUNNING", tmp_path / "running")
    monkeypatch.setattr(remedies, "SYSTEMD", tmp_path / "systemd")
    monkeypatch.setattr(remedies, "_UNITS", (tmp_path,))
    assert remedies.as_service().endswith("/ckptprof agent` as root)")
    (tmp_path / "systemd").mkdir()
    assert "/ckptprof service install` as root" in remedies.as_service()
    (tmp_path / "ckptprof.service").touch()
    assert "systemctl enable --now ckptprof" in remedies.as_service()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "container" in remedies.as_service()
    (tmp_path / "running").touch()
    assert "the service watches" in remedies.as_service()
    assert remedies.restart().startswith("`systemctl restart ckptprof`")
    assert "service install` gives the unit" in remedies.privileges()
