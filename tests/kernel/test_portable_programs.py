"""The programs that older kernels get see the same: what typed loads are not taken for, helpers read."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.kernel.fio import SIZE, Job, truths
from tests.kernel.order import order_of
from tests.kernel.tracer import Tracer, difference, order_seen

from ckptprof_collectors.ebpf import trace as trace_module
from ckptprof_collectors.ebpf.hooks import ESSENTIAL_HOOKS, OPTIONAL_HOOKS, Hook
from ckptprof_collectors.kernelfs import KernelFs

pytestmark = [pytest.mark.root, pytest.mark.bpf, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("calls_program.py")
ROWS = [
    Job("psync", "seq-1m", writes=True, direct=False),
    Job("pvsync2", "random-4k", writes=False, direct=True),
    Job("libaio", "random-4k", writes=True, direct=True),
    Job("io_uring-fixed", "mixed-16k", writes=True, direct=False),
    Job("io_uring-sqpoll", "seq-1m", writes=True, direct=False),
]


def portable(hook: Hook) -> Hook:
    """Return the hook without its typed programs."""
    variants = tuple(variant for variant in hook.variants if not variant[0].endswith("_typed"))
    return dataclasses.replace(hook, variants=variants)


@pytest.fixture
def portable_tracer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tracer]:
    """Give a trace that was offered no typed program."""
    monkeypatch.setattr(trace_module, "ESSENTIAL_HOOKS", tuple(map(portable, ESSENTIAL_HOOKS)))
    monkeypatch.setattr(trace_module, "OPTIONAL_HOOKS", tuple(map(portable, OPTIONAL_HOOKS)))
    trace = trace_module.EbpfTrace(
        KernelFs(), family_of=(os.getpid(),), small_per_window=1_000_000, small_reads_per_window=1_000_000
    )
    yield Tracer(trace)
    trace.close()


@pytest.mark.parametrize("job", ROWS, ids=str)
def test_portable_programs_count_as_fio_counts(
    portable_tracer: Tracer, on: Callable[[str], Path], program: Callable[[str], str], job: Job, tmp_path: Path
) -> None:
    """Operations, bytes and order equal fio's, and the trace says that its programs are the portable ones."""
    file, log = on("ext4") / "data.bin", tmp_path / "log"
    file.write_bytes(os.urandom(SIZE))

    seen = portable_tracer.run(job.command(program("fio"), file, log), cwd=tmp_path)

    assert {name for name in portable_tracer.trace.programs.values() if "typed" in name} == set()
    for writes, truth in truths(seen.output, log, job.directions).items():
        order = order_seen(seen.of(file, writes=writes))
        assert (order.operations, order.bytes) == (truth.operations, truth.bytes)
        assert not difference(truth.order, order)


@pytest.mark.parametrize("scenario", ["vectored", "sendfile", "splice", "copy_file_range", "append", "short", "brief"])
def test_portable_programs_count_every_call(portable_tracer: Tracer, on: Callable[[str], Path], scenario: str) -> None:
    """What a program logged of itself is what they saw."""
    directory = on("ext4")

    seen = portable_tracer.run([sys.executable, PROGRAM, scenario, directory], cwd=directory)

    logged: dict[tuple[str, bool], list[tuple[int, int]]] = {}
    for name, writes, _, offset, length in json.loads(seen.output):
        logged.setdefault((name, writes), []).append((offset, length))
    assert logged
    for (name, writes), operations in logged.items():
        sessions = seen.of(directory / name, writes=writes)
        assert not difference(order_of(operations), order_seen(sessions)), name
