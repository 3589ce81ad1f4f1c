"""Everyday work is no checkpoint: each kind once, under an agent of each level, alone or beside a training job.

The captures work-* hold each piece of work by itself, at both levels.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from everyday.jobbeside import JobBeside, summary
from everyday.rounds import ELSEWHERE, Finding, Office
from everyday.store import make_store
from everyday.table import BY_NAME, TASKS
from tests.leftovers import own

pytestmark = [pytest.mark.root, pytest.mark.bpf, pytest.mark.torch, pytest.mark.slow, pytest.mark.xdist_group("live")]

LEVELS = ("trace", "poll")
# Beside the job: what shares its disk, its names or its libraries.
BESIDE = (
    "cp a checkpoint", "rsync", "shutil with torch loaded", "hub's cache", "mail", "SQLite", "shards .npy",
    "loader reads shards", "event files",
)  # fmt: skip
# With no job beside it: what has no capture at both levels, and of the other kinds one each. `soak.py` does all.
USUAL = (
    "pip install", "git clone", "cp into a known name", "upload with torch loaded", "fast log", "shards .pt",
)  # fmt: skip


@pytest.fixture
def office() -> Iterator[Office]:
    """Give a place on a disk, with everything that the tasks read."""
    with tempfile.TemporaryDirectory(prefix=own("everyday-"), dir="/var/tmp", ignore_cleanup_errors=True) as directory:
        made = Office(Path(directory), LEVELS)
        make_store(made.store)
        yield made


def of_the_work(office: Office) -> list[Finding]:
    """Return what was reported of the tasks' and the store's files, at both levels."""
    findings = [finding for level in LEVELS for finding in office.findings(level)]
    return [finding for finding in findings if finding.task != ELSEWHERE]


def told(office: Office) -> str:
    """Return the line for the summary of the test run."""
    agents = ", ".join(f"{level} {100 * office.cpu_seconds[level] / office.seconds:.0f} %" for level in LEVELS)
    copies = ", ".join(f"{level} {len(office.findings(level, 'copy'))}" for level in LEVELS)
    lacking = ", ".join(task.name for task in TASKS if task.missing) or "nothing"
    return f"everyday {len(office.done)} done, left out: {lacking}; copies named: {copies}; CPU: {agents}"


def test_no_work_is_a_checkpoint_and_a_job_beside_it_is_told(
    office: Office, record_property: Callable[[str, object], None]
) -> None:
    """Two pieces of work at a time, then others beside a job: its events are told by name, step and path, no others."""
    lacking = [task.name for task in TASKS if task.missing and not task.optional]
    if lacking and os.environ.get("CKPTPROF_REQUIRE"):
        pytest.fail(f"programs are missing for: {', '.join(lacking)}")
    job = JobBeside(office.root / "training", formats=("torch", "dcp"), size_mb=120, interval=1.5, saves=2)
    with office.watched():
        office.work([BY_NAME[name] for name in USUAL if not BY_NAME[name].missing], at_once=2, seconds=0)
        job.start()
        try:
            office.work([BY_NAME[name] for name in BESIDE if not BY_NAME[name].missing], at_once=1, seconds=0)
        finally:
            job.end()
        office.settle()

    figures = {level: summary(job.compared(office.findings(level))) for level in LEVELS}
    record_property("figure", told(office))
    record_property("figure", f"job beside everyday work: {figures}")
    assert [(done.task, done.failure) for done in office.done if done.failure] == []
    assert [str(finding) for finding in of_the_work(office) if not job.owns(finding)] == []
    for level, seen in figures.items():
        wrong = {name: seen[name] for name in ("missed", "invented", "wrong_framework", "wrong_step", "wrong_path")}
        assert not any(wrong.values()), (level, seen)
        assert seen["found"] >= 4
