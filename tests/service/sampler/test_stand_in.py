"""What is tried in place of eBPF, where, and what is said when nothing works."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ckptprof.service.sampler.tracing import foreign_namespace
from ckptprof_collectors.kernelfs import KernelFs

ATTACH = """
import os, subprocess, sys, time
from ckptprof.cli.checks.trace import everything
from ckptprof.service.sampler.tracing import attach
from ckptprof_collectors.kernelfs import KernelFs, UnavailableError
from ckptprof_collectors.samples import FileActivity
try:
    trace = attach(KernelFs(), family_of=(os.getpid(),), ignore=())
except UnavailableError as error:
    sys.exit(f"{error.permission} {error}")
print(type(trace).__name__, trace.degraded[0])
dd = ["dd", "of=" + sys.argv[1], "bs=1M", "iflag=fullblock"]
child = subprocess.Popen(dd, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0)
samples = []
for _ in range(30):  # it has its file open until we have looked, however busy the host is
    child.stdin.write(bytes(1 << 20))
    time.sleep(0.001)
    samples += trace.read()
child.stdin.close()
child.wait()
samples += trace.read()
trace.close()
print({(s.pid == child.pid, s.bytes) for s in samples if isinstance(s, FileActivity) and s.path == sys.argv[1]})
print({check.fix for check in everything(KernelFs()) if check.id == "trace-sight"})
"""
NO_LIBBPF = {"CKPTPROF_LIBBPF": "/nonexistent/libbpf.so"}
NOBODY = ["setpriv", "--bounding-set=-bpf,-perfmon,-sys_admin", "--inh-caps=-bpf,-perfmon,-sys_admin"]


def attach(prefix: list[str], environment: dict[str, str], out: Path) -> subprocess.CompletedProcess[str]:
    """Attach in a process of its own, and trace a dd to the end."""
    return subprocess.run(
        [*prefix, sys.executable, "-c", ATTACH, str(out)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.mark.root
@pytest.mark.perf
@pytest.mark.parametrize(
    ("prefix", "environment", "why", "fix"),
    [
        pytest.param(
            [], NO_LIBBPF, "/nonexistent/libbpf.so", "as `trace-libbpf` says", marks=pytest.mark.bpf, id="no-libbpf"
        ),
        pytest.param(
            ["unshare", "--pid", "--fork", "--mount-proc"],
            {},
            "hostPID: true",
            "start this container with the pids of",
            marks=pytest.mark.namespaces,
            id="pids-of-its-own",
        ),
    ],
)
def test_perf_events_stand_in(
    prefix: list[str], environment: dict[str, str], why: str, fix: str, tmp_path: Path
) -> None:
    """Without libbpf, and in a container, whose pids they know; doctor says what would bring eBPF back."""
    done = attach(prefix, environment, tmp_path / "out")

    assert done.returncode == 0, done.stderr
    first, sessions, fixes = done.stdout.splitlines()
    assert first.startswith("PerfTrace the trace is made by perf events, because ")
    assert why in first
    assert f"(True, {30 << 20})" in sessions
    assert "(False" not in sessions
    assert fix in fixes


@pytest.mark.root
@pytest.mark.parametrize(
    ("prefix", "permission"), [(["setarch", "linux32"], "False"), (NOBODY, "True")], ids=["another-machine", "nobody"]
)
def test_the_reasons_of_both_are_told(prefix: list[str], permission: str, tmp_path: Path) -> None:
    """In one sentence; if privileges would help one of the two, they are what is missing."""
    done = attach(prefix, NO_LIBBPF, tmp_path / "out")

    first = foreign_namespace(KernelFs()) or "/nonexistent/libbpf.so cannot be loaded"
    assert done.stderr.startswith(f"{permission} {first}")
    assert "; perf events: " in done.stderr
    assert len(done.stderr.splitlines()) == 1
