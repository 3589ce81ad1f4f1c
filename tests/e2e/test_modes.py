"""Sync or async, and for how long training was held, as the job itself logged it: one way to save after another."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from recorder import Recorder

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.torch, pytest.mark.timeout(180)]

JOB = Path(__file__).parent / "jobs" / "modes.py"
MODES = {
    "in-line": "sync",
    "thread": "async",
    "thread-joined": "sync",
    "fork": "async",
    "spawn": "async",
    "spawn-joined": "sync",
    "dcp": "sync",
    "dcp-threads": "sync",
    "dcp-async": "async",
    "dcp-process": "async",
}
LEVELS = [pytest.param("poll"), pytest.param("trace", marks=[pytest.mark.root, pytest.mark.bpf])]


def hold_to_truth(recorder: Recorder, way: str, mode: str, *options: str) -> None:
    """Run the job, and assert what is reported of how it was held."""
    truth = recorder.work / "truth.jsonl"
    job = [sys.executable, str(JOB), way, "--dir", str(recorder.work / "job"), "--truth", str(truth), *options]
    recorder.run(*job)
    held = {row["step"]: row["held"] for row in map(json.loads, truth.read_text().splitlines())}
    saves = {save["step"]: save for save in recorder.checkpoints() if save["kind"] == "save"}

    assert set(saves) == set(held) == {1, 2}
    for step, save in saves.items():
        assert save["mode"] == mode, (step, save["evidence"], save["blind"])
        if save["level"] == "poll" and save["stall_ns"] is None:
            assert save["blind"]
            continue
        assert save["stall_ns"] / 1e9 == pytest.approx(held[step], abs=max(0.3, 0.25 * held[step])), save["evidence"]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("way", "mode"), MODES.items())
def test_mode_and_stall_are_those_that_the_job_logged(recorder: Recorder, level: str, way: str, mode: str) -> None:
    """A trainer with work to do, whoever writes for it."""
    recorder.level = level
    hold_to_truth(recorder, way, mode)


@pytest.mark.parametrize(("way", "mode"), [("thread", "async"), ("thread-joined", "sync"), ("fork-joined", "sync")])
@pytest.mark.parametrize("level", LEVELS)
def test_a_loop_that_only_sleeps_is_told_from_one_that_waits(
    recorder: Recorder, level: str, way: str, mode: str
) -> None:
    """It uses no CPU in either case."""
    recorder.level = level
    hold_to_truth(recorder, way, mode, "--sleeps")


@pytest.mark.orbax
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("way", "mode"), [("orbax", "sync"), ("orbax-async", "async")])
def test_orbax_writes_from_threads_in_either_mode(recorder: Recorder, level: str, way: str, mode: str) -> None:
    """Only whether the trainer waits for them differs."""
    recorder.level = level
    hold_to_truth(recorder, way, mode)
