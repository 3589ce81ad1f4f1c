"""The unit by systemd's own judgement, and what of it must never be lost."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ckptprof.assets import asset
from ckptprof.errors import UsageError
from ckptprof.service.commands.installation import START_SECONDS
from ckptprof.service.commands.monitored_command import MAX_START_SECONDS
from ckptprof.service.sampler.entry_point import MAX_RUN_US

UNIT = asset("systemd/ckptprof.service")
EXAMPLES = sorted(asset("systemd/ckptprof.service.d").glob("*.example"))


def directives() -> dict[str, list[str]]:
    """Return every directive with its values in order."""
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text(encoding="utf-8").splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def installed(directory: Path, example: Path | None = None) -> Path:
    """Copy the unit, with the program of this machine in the place of the installed one, and one drop-in."""
    unit = directory / UNIT.name
    text = UNIT.read_text(encoding="utf-8")
    unit.write_text(re.sub(r"(?m)^ExecStart=.*$", f"ExecStart={sys.executable} -I", text), encoding="utf-8")
    if example is not None:
        folder = directory / example.parent.name
        folder.mkdir()
        shutil.copy(example, folder / example.name.removesuffix(".example"))
    return unit


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run systemd-analyze."""
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False)


@pytest.mark.nspawn
@pytest.mark.parametrize("example", [None, *EXAMPLES], ids=lambda path: path.name if path else "alone")
def test_systemd_understands_every_line(tmp_path: Path, example: Path | None) -> None:
    """`systemd-analyze verify` says nothing: no unknown directive, no bad value."""
    done = analyze("verify", "--man=no", str(installed(tmp_path, example)))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.nspawn
def test_the_page_states_the_exposure_that_systemd_prints(tmp_path: Path) -> None:
    """As the unit is, and with the drop-in that only polls; another systemd than the page's gives at most 3.0 of 10."""
    page = re.search(
        r"`(systemd-analyze security --offline=true)` of systemd (\d+) gives ([\d.]+) \(([\d.]+) with the drop-in",
        (UNIT.parent / "README.md").read_text(encoding="utf-8"),
    )
    assert page is not None
    printed = []
    for example in (None, next(path for path in EXAMPLES if "poll" in path.name)):
        folder = tmp_path / str(example and example.name)
        folder.mkdir()
        done = analyze(*page[1].split()[1:], "--no-pager", str(installed(folder, example)))
        level = re.search(r"exposure level for ckptprof.service: ([\d.]+) ", done.stdout)
        assert level is not None, done.stderr
        printed.append(level[1])

    if analyze("--version").stdout.split()[1] == page[2]:
        assert printed == [page[3], page[4]]
    assert max(map(float, printed)) <= 3.0


@pytest.mark.nspawn
@pytest.mark.skipif(shutil.which("systemd-sysusers") is None, reason="not installed: systemd-sysusers")
def test_the_user_can_be_made(tmp_path: Path) -> None:
    """systemd-sysusers makes user and group in an empty root."""
    (tmp_path / "etc").mkdir()
    source = asset("systemd/ckptprof.sysusers.conf")
    done = subprocess.run(
        ["systemd-sysusers", f"--root={tmp_path}", str(source)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    line = next(line for line in (tmp_path / "etc/passwd").read_text().splitlines() if line.startswith("ckptprof:"))
    assert line.endswith(":/var/lib/ckptprof:/usr/sbin/nologin")


def test_nothing_blinds_the_agent() -> None:
    """None of the directives that were measured to hide what it watches, or to hand out wrong numbers, is set."""
    unit = directives()
    for name in ("PrivateUsers", "PrivateNetwork", "ProcSubset", "PrivateDevices", "CPUQuota", "RootDirectory"):
        assert name not in unit
    assert unit["ProtectHome"] == ["read-only"]
    assert "AF_NETLINK" in unit["RestrictAddressFamilies"][0].split()
    assert unit["SystemCallErrorNumber"] == ["EPERM"]


def test_privileges_are_four_capabilities() -> None:
    """An unprivileged user, two capabilities to see other users' jobs and two to attach eBPF, no way to get more."""
    unit = directives()
    assert unit["User"] == ["ckptprof"]
    four = "CAP_SYS_PTRACE CAP_DAC_READ_SEARCH CAP_BPF CAP_PERFMON"
    assert unit["AmbientCapabilities"] == unit["CapabilityBoundingSet"] == [four]
    assert unit["NoNewPrivileges"] == ["yes"]


def test_ebpf_is_allowed_and_nothing_else_that_is_privileged() -> None:
    """What attaches, what gives up and what asks the clock is allowed after the lists that take it away.

    Without CAP_SYS_TIME, which no set has, the clock cannot be set by it. Locked memory is bounded.
    """
    unit = directives()
    assert unit["SystemCallFilter"] == [
        "@system-service",
        "~@resources @privileged",
        "bpf perf_event_open capset sched_setscheduler adjtimex",
    ]
    assert unit["LimitMEMLOCK"] == ["256M"]


def test_it_is_watched_and_bounded() -> None:
    """Readiness, watchdog, and a limit on memory, tasks and files; the program by its absolute path."""
    unit = directives()
    assert unit["Type"] == ["notify"]
    assert int(unit["WatchdogSec"][0]) > 0
    assert unit["ExecStart"][0].startswith("/")
    assert (unit["CPUWeight"], unit["Nice"]) == (["500"], ["-5"])
    assert (unit["LimitRTPRIO"], unit["LimitRTTIME"]) == (["1"], [f"{MAX_RUN_US // 1000}ms:infinity"])
    assert unit["RestartPreventExitStatus"] == [str(UsageError.exit_code)]
    assert (unit["Restart"], unit["StartLimitIntervalSec"], "StartLimitBurst" in unit) == (["on-failure"], ["0"], False)
    assert 10 <= int(unit["RestartSec"][0]) <= 60
    assert MAX_START_SECONDS < int(unit["TimeoutStartSec"][0]) <= START_SECONDS - 40
    assert {"MemoryHigh", "MemoryMax", "TasksMax", "LimitNOFILE", "TimeoutStopSec"} <= unit.keys()
