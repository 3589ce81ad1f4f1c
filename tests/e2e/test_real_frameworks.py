"""Every framework that runs on a CPU saves and restores by its own means, and ckptprof says of it what the job says."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from framework_jobs import JOBS, Job, edge_share, figure, run_job, wrong
from recorder import Recorder

from truth import Comparison, table

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("live")]


@dataclass(frozen=True)
class Promise:
    """What must be right at a level, beside that every event is found and none invented."""

    edge_share: float
    worst_bytes_percent: float
    words: tuple[str, ...]


SAVES = 2
FROM_DISK = ("torch_save", "dcp")  # read by read(2) alone; the captures restore-sources* hold warm ones and mappings
ALL_JOBS = os.environ.get("CKPTPROF_JOBS") == "all"  # a quarter of an hour; CI takes one or two of each kind
PROMISES = {
    "trace": Promise(0.1, 1, ("framework", "step", "ranks", "mode")),
    "poll": Promise(0.25, 1, ("framework", "step")),
}
CASES = [
    pytest.param(
        job,
        levels,
        id="-".join((job.name, *levels)),
        marks=[getattr(pytest.mark, job.family), *([pytest.mark.root, pytest.mark.bpf] if "trace" in levels else [])],
    )
    for job in JOBS
    if (levels := job.proven if ALL_JOBS else job.usual)
]


@pytest.mark.parametrize(("job", "levels"), CASES)
def test_a_framework_is_told_as_its_job_logs_it(
    recorder: Recorder, record_property: Callable[[str, object], None], job: Job, levels: tuple[str, ...]
) -> None:
    """Two saves and a cold restore are three events of the right framework, step, ranks, mode, time and size.

    All levels look at the same job.
    """
    first, *others = (recorder.at(level) for level in levels)

    comparisons = dict(zip(levels, run_job(first, job, *others, saves=SAVES), strict=True))

    for level, comparison in comparisons.items():
        record_property("figure", figure(level, job, comparison))
        hold_to_promise(comparison, level)
        if job.script in FROM_DISK and os.major(recorder.work.stat().st_dev):  # not in memory
            restored = [row.seen["cache"] for row in comparison.rows if row.seen["kind"] == "restore"]
            assert restored == ["cold"], f"at the level {level}:\n{table(comparison)}"
        assert all(Path(row.seen["path"]).is_relative_to(recorder.work / "job") for row in comparison.rows), level


def hold_to_promise(comparison: Comparison, level: str) -> None:
    """Assert everything that is promised of a report at this level."""
    promise, who = PROMISES[level], f"at the level {level}:\n{table(comparison)}"
    assert (comparison.of("missed"), comparison.of("invented")) == ([], []), who
    assert len(comparison.of("found")) == SAVES + 1, who
    assert [word for row in comparison.rows for word in wrong(row, promise.words)] == [], who
    assert comparison.worst_bytes_error_percent <= promise.worst_bytes_percent, who
    assert edge_share(comparison.rows) <= promise.edge_share, who
    assert [row.seen["status"] for row in comparison.rows] == ["complete"] * (SAVES + 1), who
