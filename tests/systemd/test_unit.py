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
from ckptprof.service.sampler.punctual import LONGEST_US

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
@pytest.mark.parametrize(("example", "most"), [(None, 30), ("poll", 25)], ids=["as it is", "poll only"])
def test_exposure_stays_low(tmp_path: Path, example: str | None, most: int) -> None:
    """`systemd-analyze security` gives at most 3.0 of 10, and 2.5 without eBPF; node_exporter's unit has 9.2."""
    chosen = next((path for path in EXAMPLES if example and example in path.name), None)
    unit = str(installed(tmp_path, chosen))
    done = analyze("security", "--offline=true", f"--threshold={most}", "--no-pager", unit)
    assert done.returncode == 0, done.stdout.splitlines()[-1]
    assert "exposure level for ckptprof.service" in done.stdout
    assert analyze("security", "--offline=true", "--threshold=10", "--no-pager", unit).returncode != 0


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
    assert (unit["LimitRTPRIO"], unit["LimitRTTIME"]) == (["1"], [f"{LONGEST_US // 1000}ms:infinity"])
    assert unit["RestartPreventExitStatus"] == [str(UsageError.exit_code)]
    assert {"MemoryHigh", "MemoryMax", "TasksMax", "LimitNOFILE", "TimeoutStopSec"} <= unit.keys()
