"""What doctor says of the trace level: piece by piece, by a real try, and with the command that fixes it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE_SECONDS

from ckptprof.cli.checks import remedies, trace_checks
from ckptprof.report.doctor import Check, render
from ckptprof.service.commands import levels
from ckptprof_collectors.kernelfs import KernelFs, UnavailableError

FULL = "000001ffffffffff"
BPF_AND_PERFMON = f"{1 << 39 | 1 << 38:016x}"
SYS_ADMIN = f"{1 << 21:016x}"


class Attached:
    """A trace that could be made."""

    programs: dict[str, str] = {"calls": "call_exit_portable", "io_uring": "uring_submit_ring"}  # noqa: RUF012 - as the real one
    degraded = (
        "not monitored: pages that are read through mappings (the kernel tells of them since 6.12): no tracepoint",
        "not monitored: requests to devices: refused",
    )
    closed = False

    def close(self) -> None:
        """Take note."""
        self.closed = True


def test_types_are_looked_for(tree: Callable[..., KernelFs]) -> None:
    """Without BTF the version of the kernel is told, as a hint."""
    fs = tree(proc__sys__kernel__osrelease="4.18.0-25-generic\n")
    missing = trace_checks.check_btf(fs)
    found = trace_checks.check_btf(tree(sys__kernel__btf__vmlinux="x"))

    assert (missing.status, found.status) == ("warn", "ok")
    assert "4.18.0-25-generic" in missing.text
    assert "CONFIG_DEBUG_INFO_BTF" in (missing.fix or "")


@pytest.mark.parametrize(
    ("mask", "status"),
    [(FULL, "ok"), (BPF_AND_PERFMON, "ok"), (SYS_ADMIN, "ok"), (f"{1 << 39:016x}", "warn"), (f"{0:016x}", "warn")],
)
def test_both_capabilities_or_the_old_one(mask: str, status: str, tree: Callable[..., KernelFs]) -> None:
    """Either alone does not do."""
    check = trace_checks.privileges(tree(proc__self__status=f"CapEff:\t{mask}\n"))

    assert check.status == status
    assert (check.fix is None) == (status == "ok")


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("none [integrity] confidentiality\n", "ok"),
        ("[none] integrity confidentiality\n", "ok"),
        ("none integrity [confidentiality]\n", "warn"),
        ("\x1b]0;x\x07", "note"),
        ("", "note"),
    ],
)
def test_lockdown(text: str, status: str, tree: Callable[..., KernelFs]) -> None:
    """Only its stricter degree is in the way, and where it cannot be seen that is said."""
    assert trace_checks.lockdown(tree(sys__kernel__security__lockdown=text)).status == status
    assert trace_checks.lockdown(KernelFs(Path("/nowhere"), Path("/nowhere"))).status == "note"


def test_each_hook_and_each_degradation_is_named() -> None:
    """With what would mend it; nothing stays attached."""
    made = Attached()
    asked: list[dict[str, Any]] = []

    def attach(_: KernelFs, **options: Any) -> Any:
        asked.append(options)
        return made

    works, *blind = trace_checks.try_attach(KernelFs(), attach)

    assert works == Check(
        "trace", "ok", "the trace level works: calls (call_exit_portable), io_uring (uring_submit_ring)"
    )
    assert [(check.status, check.fix) for check in blind] == [
        ("note", "boot a kernel of 6.12 or newer"),
        ("note", trace_checks.NEWER),
    ]
    assert [check.text.count("not monitored") for check in blind] == [1, 1]
    assert made.closed
    assert asked == [{"family_of": (os.getpid(),), "ignore": ()}]


@pytest.mark.parametrize(
    ("error", "permission", "status"),
    [
        (UnavailableError("lacks CAP_BPF"), True, "warn"),
        (UnavailableError("no BTF \x1b[31m"), False, "warn"),
        (RuntimeError("what"), False, "fail"),
    ],
)
def test_what_cannot_be_attached_is_told_with_its_reason(error: Exception, status: str, *, permission: bool) -> None:
    """Of a missing privilege the way to get it too; nothing of it reaches the terminal as it is."""
    error.permission = permission  # type: ignore[attr-defined] # as the collector does

    def attach(*_: object, **__: object) -> Any:
        raise error

    (check,) = trace_checks.try_attach(KernelFs(), attach)

    assert check.status == status
    assert str(error) in check.text
    assert "sizes and offsets of single calls" in check.text
    assert (check.fix == remedies.cover_host()) == permission
    assert "\x1b" not in render([check], width=80, colour=False)


@pytest.mark.parametrize(
    ("bounded", "statuses", "fix"),
    [
        (False, ("ok", "ok"), levels.SHARE_PIDS),
        (True, ("warn", "ok"), levels.SHARE_PIDS_AND_CAPABILITIES),
        (True, ("warn", "warn"), f"{levels.SHARE_PIDS_AND_CAPABILITIES}, and with it what `trace-libbpf` names"),
        (False, ("warn", "warn"), f"{levels.SHARE_PIDS}, and with it what `trace-privileges` and `trace-libbpf` name"),
    ],
)
def test_all_that_a_container_lacks_is_named_at_once(
    statuses: tuple[str, str], fix: str, monkeypatch: pytest.MonkeyPatch, *, bounded: bool
) -> None:
    """One of them alone brings no trace."""
    monkeypatch.setattr(levels, "are_in_bounding_set", lambda *_: not bounded)
    names = ("trace-privileges", "trace-libbpf")
    pieces = [Check(name, status, "", "mend it") for name, status in zip(names, statuses, strict=True)]

    def attach(*_: object, **__: object) -> Any:
        raise UnavailableError("the pids of this container are not the host's: share them (--pid=host)")

    (check,) = trace_checks.try_attach(KernelFs(), attach, pieces=pieces)

    assert check.fix == fix


@pytest.mark.parametrize("hosts", [True, False])
def test_types_that_a_container_hides_are_shown_by_its_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, hosts: bool
) -> None:
    """No other kernel need be booted for that."""
    monkeypatch.setattr(trace_checks, "has_host_pids", lambda _: hosts)
    check = trace_checks.check_btf(KernelFs(sys=tmp_path))

    assert check.status == "warn"
    assert (check.fix or "").startswith("boot a kernel") is hosts
    assert "CONFIG_DEBUG_INFO_BTF=y" in (check.fix or "")


def test_libbpf_is_named_or_the_command_that_installs_it(tmp_path: Path) -> None:
    """A library that is none is unusable, whatever it is."""
    code = "from ckptprof.cli.checks.trace_checks import libbpf; c = libbpf(); print(c.status, c.fix is None)"
    environment = {**os.environ, "CKPTPROF_LIBBPF": str(tmp_path / "none.so")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)

    assert done.stdout == "warn False\n"
    assert trace_checks.libbpf().status in ("ok", "warn")


def test_the_document_holds_all_of_it(tmp_path: Path) -> None:
    """As --json, on this host."""
    command = [sys.executable, str(Path(sys.executable).with_name("ckptprof")), "doctor", "--json"]
    done = subprocess.run(
        [*command, "--db", str(tmp_path / "no.db")],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    found = {check["id"]: check["status"] for check in json.loads(done.stdout)["checks"]}

    assert done.returncode in (0, 4)
    assert {"trace-btf", "trace-privileges", "trace-libbpf", "trace-lockdown", "trace"} <= found.keys()
