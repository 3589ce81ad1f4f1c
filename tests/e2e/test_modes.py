"""Sync or async, and for how long training was blocked, as the job itself logged it: one way to save after another."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from recorder import Recorder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("jobs"),
    pytest.mark.alone,
    pytest.mark.torch,
    pytest.mark.timeout(180),
]

JOB = Path(__file__).parent / "jobs" / "modes.py"
ROOT = (pytest.mark.root, pytest.mark.bpf)
CASES = [
    *(pytest.param(levels, way, mode, marks=ROOT, id=f"{'-'.join(levels)}-{way}") for levels, way, mode in (
        (("trace", "poll"), "in-line", "sync"),
        (("trace", "poll"), "thread-joined", "sync"),
        (("trace", "poll"), "dcp-async", "async"),
        (("trace",), "fork", "async"),
        (("trace",), "dcp-threads", "sync"),
        (("trace",), "dcp-process", "async"),
    )),
    pytest.param(("poll",), "thread", "async", id="poll-thread"),
]  # fmt: skip
POLLING = pytest.mark.flaky(reruns=1, only_rerun="at the level poll")  # what polling is held to, as in conftest.py


def hold_to_truth(recorder: Recorder, levels: tuple[str, ...], way: str, mode: str, *options: str) -> None:
    """Run the job once, watched at all levels, and assert what is reported of how it was held."""
    truth = recorder.work / "truth.jsonl"
    job = [sys.executable, str(JOB), way, "--dir", str(recorder.work / "job"), "--truth", str(truth), *options]
    first, *others = watching = [recorder.at(level) for level in levels]
    first.run_with(others, *job)
    held = {row["step"]: row["held"] for row in map(json.loads, truth.read_text().splitlines())}
    for one in watching:
        saves = [save for save in one.checkpoints() if save["kind"] == "save"]
        who = f"at the level {one.level}: {saves}"
        assert sorted(save["step"] for save in saves) == sorted(held) == [1, 2], who
        for save in saves:
            assert save["level"] == one.level
            assert mode_is_right(save, mode), who
            assert stall_is_right(save, mode, held[save["step"]]), who


def mode_is_right(save: dict[str, Any], mode: str) -> bool:
    """Tell whether the mode is the job's; a look or two of polling may not tell, and then say so."""
    if save["level"] == "poll" and save["mode"] is None:
        return any(sentence.startswith("whether training went on") for sentence in save["blind"])
    return bool(save["mode"] == mode)


def stall_is_right(save: dict[str, Any], mode: str, held_seconds: float) -> bool:
    """Tell whether the stall is the one that the job logged, or is owned up to be unknown."""
    if save["mode"] is None:
        return True
    if mode == "async" and save["stall_ns"] is None:
        return any(sentence.startswith("how long training was blocked") for sentence in save["blind"])
    rough = mode == "async" and save["level"] == "poll"  # when its first byte was written is not seen exactly
    slack = max(0.35, (1.0 if rough else 0.25) * held_seconds)
    return bool(save["stall_ns"] / 1e9 == pytest.approx(held_seconds, abs=slack))


@POLLING
@pytest.mark.parametrize(("levels", "way", "mode"), CASES)
def test_mode_and_stall_are_those_that_the_job_logged(
    recorder: Recorder, levels: tuple[str, ...], way: str, mode: str
) -> None:
    """A trainer with work to do, whoever writes for it; a stall that nothing shows is not told."""
    hold_to_truth(recorder, levels, way, mode)


@POLLING
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
    hold_to_truth(recorder, (level,), way, mode, "--sleeps")


@pytest.mark.orbax
@pytest.mark.root
@pytest.mark.bpf
@pytest.mark.parametrize(("way", "mode"), [("orbax", "sync"), ("orbax-async", "async")])
def test_orbax_writes_from_threads_in_either_mode(recorder: Recorder, way: str, mode: str) -> None:
    """Only whether the trainer waits for them differs."""
    hold_to_truth(recorder, ("trace",), way, mode)
