"""Every framework that runs on a CPU saves and restores by its own means, and ckptprof says of it what the job says."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from framework_jobs import JOBS, Job, edge_errors_ms, figure, run_job, wrong
from recorder import Recorder

from truth import table

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(240)]


@dataclass(frozen=True)
class Promise:
    """What must be right at a level, beside that every event is found and none invented."""

    median_edge_ms: float
    worst_bytes_percent: float
    words: tuple[str, ...]


ALL_JOBS = os.environ.get("CKPTPROF_JOBS") == "all"  # a quarter of an hour; CI takes one or two of each kind
PROMISES = {
    "trace": Promise(50, 1, ("framework", "step", "ranks", "mode")),
    "poll": Promise(250, 1, ("framework", "step")),
}
CASES = [
    pytest.param(
        job,
        level,
        id=f"{job.name}-{level}",
        marks=[getattr(pytest.mark, job.family), *([pytest.mark.root, pytest.mark.bpf] if level == "trace" else [])],
    )
    for job in JOBS
    for level in PROMISES
    if level in (job.proven if ALL_JOBS else job.usual)
]


@pytest.mark.parametrize(("job", "level"), CASES)
def test_a_framework_is_told_as_its_job_logs_it(
    recorder: Recorder, record_property: Callable[[str, object], None], job: Job, level: str
) -> None:
    """Three saves and a cold restore are four events of the right framework, step, ranks, mode, time and size."""
    promise, recorder.level = PROMISES[level], level

    comparison = run_job(recorder, job)

    record_property("figure", figure(level, job, comparison))
    assert (comparison.of("missed"), comparison.of("invented")) == ([], []), table(comparison)
    assert len(comparison.of("found")) == 4
    assert [word for row in comparison.rows for word in wrong(row, promise.words)] == [], table(comparison)
    assert comparison.worst_bytes_error_percent <= promise.worst_bytes_percent, table(comparison)
    assert statistics.median(edge_errors_ms(comparison.rows)) <= promise.median_edge_ms, table(comparison)
    for row in comparison.rows:
        assert Path(row.seen["path"]).is_relative_to(recorder.work / "job")
        assert row.seen["status"] == "complete"
