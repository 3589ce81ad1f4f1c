"""Where so many calls are made that the trace would be felt it leaves out detail, says so, and keeps the totals."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kernel.filesystems import FileSystems, call
from tests.kernel.tracer import Tracer

from ckptprof.service.sampler.tracing import FOLLOWED, TRAINS, WATCHED
from ckptprof_collectors.ebpf.trace import EbpfTrace
from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.samples import TraceHealth

pytestmark = [pytest.mark.root, pytest.mark.bpf, pytest.mark.slow]

CALLS = 400_000
LOOP = f"""
import os, sys, time
descriptor = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
for _ in range(8):
    for _ in range({CALLS} // 8):
        os.write(descriptor, b"x")
    time.sleep(0.3)
os.close(descriptor)
"""


READS = """
import subprocess, sys
small, large, leaf = sys.argv[1:4]
for name in (small, large):
    with open(name, "rb", buffering=0) as file:
        file.read(1 << 20)
if leaf != "leaf":
    sys.exit(subprocess.run([sys.executable, "-c", leaf, small + "r", large, "leaf"]).returncode)
"""


@pytest.fixture
def nervous() -> Iterator[EbpfTrace]:
    """Give a trace that a hundred calls a second and processor are too many for."""
    trace = EbpfTrace(KernelFs(), family_of=(os.getpid(),), shed_calls=100)
    yield trace
    trace.close()


def test_too_many_calls_cost_their_detail_and_not_their_sum(nervous: EbpfTrace, tmp_path: Path) -> None:
    """Operations and bytes stay exact; sizes and times of some are missing, and a sentence says it."""
    assert nervous.degraded == ()

    seen = Tracer(nervous).run([sys.executable, "-c", LOOP, str(tmp_path / "x")])

    (session,) = seen.of(tmp_path / "x", writes=True)
    assert (session.operations, session.bytes, session.consecutive_bytes) == (CALLS, CALLS, CALLS)
    sized = sum(operations for _, operations, _ in session.sizes)
    assert 0 < sized < CALLS
    assert 0 < session.timed_operations < CALLS
    healths = [health for health in seen.health if isinstance(health, TraceHealth)]
    assert any("too many" in sentence for health in healths for sentence in health.degraded)
    assert any("too many" in sentence for sentence in nervous.degraded)


@pytest.mark.parametrize(
    "attended",
    [
        "nobody",
        "more than there is room for",
        "at last as many as there is room for",
        "who trains",
        "who does not train",
    ],
)
def test_trifles_that_strangers_read_stay_sums(attended: str, tmp_path: Path) -> None:
    """They are told of the children and grandchildren of a process that trains, and of all if too many are wanted."""
    for name, size_bytes in (("small", 1000), ("smallr", 1000), ("large", 1 << 20)):
        (tmp_path / name).write_bytes(bytes(size_bytes))
    own = os.getpid()
    wanted: dict[str, dict[int, int]] = {
        "more than there is room for": {**dict.fromkeys(range(1 << 20, (1 << 20) + 5000), FOLLOWED), own: TRAINS},
        "at last as many as there is room for": {
            **dict.fromkeys(range(1 << 20, (1 << 20) + 5000), FOLLOWED),
            own: TRAINS,
        },
        "who trains": {own: TRAINS},
        "who does not train": {own: FOLLOWED},
    }
    trace = EbpfTrace(KernelFs(), family_of=(os.getpid(),), small_reads_per_window=1_000_000)
    try:
        trace.set_attended(wanted.get(attended, {}), 64 << 10)
        if attended == "at last as many as there is room for":
            trace.set_attended({own: TRAINS}, 64 << 10)
        seen = Tracer(trace).run(
            [sys.executable, "-c", READS, tmp_path / "small", tmp_path / "large", READS], cwd=tmp_path
        )
        trifles, again = trace.consume_trifles(), trace.consume_trifles()
    finally:
        trace.close()

    told = {name for name in ("small", "smallr", "large") if seen.of(tmp_path / name, writes=False)}
    assert told == ({"large"} if attended in ("nobody", "who does not train") else {"large", "small", "smallr"})
    assert seen.lost == 0
    assert bool(trifles) == ("small" not in told)  # also of the code of the interpreter itself
    assert all(read_bytes >= 1000 for read_bytes in trifles.values())
    assert not again


WRITES = """
import os, sys
for name, size_bytes in (("small", 1000), ("large", 1 << 20)):
    fd = os.open(name, os.O_WRONLY | os.O_CREAT)
    os.write(fd, bytes(size_bytes))
    os.close(fd)
"""


@pytest.mark.parametrize("attention", [WATCHED, FOLLOWED, TRAINS])
def test_small_files_of_a_process_that_is_not_followed_stay_sums(attention: int, tmp_path: Path) -> None:
    """What a package manager unpacks; a process that is only watched has its connections reported, and large files."""
    script = f"import os; os.chdir({str(tmp_path)!r}); input()\n{WRITES}"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, text=True) as writer:
        trace = EbpfTrace(KernelFs())
        try:
            trace.set_attended({writer.pid: attention}, 64 << 10)
            with Tracer(trace).watch() as seen:
                writer.communicate("\n")
            trifles = trace.consume_trifles()
        finally:
            trace.close()

    told = {name for name in ("small", "large") if seen.of(tmp_path / name, writes=True)}
    events = {event.kind for event in seen.events(tmp_path / "small")}
    assert ("created" in events, bool(events)) == (attention != WATCHED,) * 2  # a close that lasts is reported, too
    assert told == ({"large"} if attention == WATCHED else {"small", "large"})
    assert (trifles.get(writer.pid, 0) >= 1000) == (attention == WATCHED)


def test_a_create_that_waits_is_reported_whoever_makes_it(filesystems: FileSystems) -> None:
    """It may begin the first save of a process that is not known to train: a server answers late."""
    folder = filesystems.directory("ext4")
    script = (
        f"import os; os.chdir({str(folder)!r}); input('ready'); os.close(os.open('late', os.O_WRONLY | os.O_CREAT))"
    )
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-u", "-c", script], **pipes) as writer:
        assert writer.stdout is not None
        assert writer.stdout.read(5) == b"ready"
        trace = EbpfTrace(KernelFs())
        try:
            trace.set_attended({}, 64 << 10)
            with Tracer(trace).watch() as seen:
                call("fsfreeze", "--freeze", folder)
                try:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        writer.communicate(b"\n", timeout=1.0)
                finally:
                    call("fsfreeze", "--unfreeze", folder)
                writer.communicate()
        finally:
            trace.close()

    (created,) = seen.events(folder / "late", "created")
    assert (created.duration_ns or 0) >= 100_000_000
