"""Sync or async, and for how long training was held, as the job itself logged it: one way to save after another."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from recorder import Recorder

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.torch, pytest.mark.timeout(180)]

JOB = Path(__file__).parent / "jobs" / "modes.py"
ROOT = (pytest.mark.root, pytest.mark.bpf)
CASES = [
    *(pytest.param("trace", way, mode, marks=ROOT) for way, mode in (
        ("in-line", "sync"),
        ("thread-joined", "sync"),
        ("fork", "async"),
        ("dcp-threads", "sync"),
        ("dcp-async", "async"),
        ("dcp-process", "async"),
    )),
    pytest.param("poll", "in-line", "sync"),
    pytest.param("poll", "thread", "async"),
    pytest.param("poll", "thread-joined", "sync"),
    pytest.param("poll", "dcp-async", "async"),
]  # fmt: skip


def hold_to_truth(recorder: Recorder, way: str, mode: str, *options: str) -> None:
    """Run the job, and assert what is reported of how it was held."""
    truth = recorder.work / "truth.jsonl"
    job = [sys.executable, str(JOB), way, "--dir", str(recorder.work / "job"), "--truth", str(truth), *options]
    recorder.run(*job)
    held = {row["step"]: row["held"] for row in map(json.loads, truth.read_text().splitlines())}
    saves = [save for save in recorder.checkpoints() if save["kind"] == "save"]

    assert sorted(save["step"] for save in saves) == sorted(held) == [1, 2]
    for save in saves:
        step = save["step"]
        if save["level"] == "poll" and save["mode"] is None:  # a look or two may not tell, and then say so
            assert any(sentence.startswith("whether training went on") for sentence in save["blind"])
            continue
        assert save["mode"] == mode, (step, save["evidence"], save["blind"])
        if mode == "async" and save["stall_ns"] is None:
            assert any(sentence.startswith("how long training was held") for sentence in save["blind"])
            continue
        rough = mode == "async" and save["level"] == "poll"  # when its first byte was written is not seen exactly
        slack = max(0.35, (1.0 if rough else 0.25) * held[step])
        assert save["stall_ns"] / 1e9 == pytest.approx(held[step], abs=slack), save["evidence"]


@pytest.mark.parametrize(("level", "way", "mode"), CASES)
def test_mode_and_stall_are_those_that_the_job_logged(recorder: Recorder, level: str, way: str, mode: str) -> None:
    """A trainer with work to do, whoever writes for it; a stall that nothing shows is not told."""
    recorder.level = level
    hold_to_truth(recorder, way, mode)


@pytest.mark.parametrize(
    ("level", "way", "mode"),
    [
        pytest.param("trace", "thread", "async", marks=ROOT),
        pytest.param("poll", "fork-joined", "sync"),
    ],
)
def test_a_loop_that_only_sleeps_is_told_from_one_that_waits(
    recorder: Recorder, level: str, way: str, mode: str
) -> None:
    """It uses no CPU in either case."""
    recorder.level = level
    hold_to_truth(recorder, way, mode, "--sleeps")


@pytest.mark.orbax
@pytest.mark.root
@pytest.mark.bpf
@pytest.mark.parametrize(("way", "mode"), [("orbax", "sync"), ("orbax-async", "async")])
def test_orbax_writes_from_threads_in_either_mode(recorder: Recorder, way: str, mode: str) -> None:
    """Only whether the trainer waits for them differs."""
    recorder.level = "trace"
    hold_to_truth(recorder, way, mode)
