"""Where so many calls are made that the trace would be felt it leaves out detail, says so, and keeps the totals."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kernel.tracer import Tracer

from ckptprof_collectors.ebpf.trace import Trace
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


@pytest.fixture
def nervous() -> Iterator[Trace]:
    """Give a trace that a hundred calls a second and processor are too many for."""
    trace = Trace(KernelFs(), family_of=(os.getpid(),), shed_calls=100)
    yield trace
    trace.close()


def test_too_many_calls_cost_their_detail_and_not_their_sum(nervous: Trace, tmp_path: Path) -> None:
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
