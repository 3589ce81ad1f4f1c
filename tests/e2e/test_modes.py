"""Sync or async, and for how long training was blocked, as the job itself logged it, at both levels.

The captures `mode-*` hold the other ways of jobs/modes.py, those of Orbax among them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from recorder import JobBrokeError, Recorder, check_job

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("live"),
    pytest.mark.torch,
    pytest.mark.root,
    pytest.mark.bpf,
]

JOB = Path(__file__).parent / "jobs" / "modes.py"
LEVELS = ("trace", "poll")


def hold_to_truth(recorder: Recorder, way: str, mode: str, *options: str) -> None:
    """Run the job once, watched at both levels, and assert what is reported of how it was held."""
    truth = recorder.work / "truth.jsonl"
    job = [sys.executable, str(JOB), way, "--dir", str(recorder.work / "job"), "--truth", str(truth), *options]
    first, *others = watching = [recorder.at(level) for level in LEVELS]
    check_job(first.run_with(others, *job))
    held = {row["step"]: row["held"] for row in map(json.loads, truth.read_text().splitlines())}
    if sorted(held) != [1, 2]:
        raise JobBrokeError(f"it has logged the saves {sorted(held)}")
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


@pytest.mark.parametrize(
    ("way", "mode"), [("in-line", "sync"), ("thread-joined", "sync"), ("thread", "async"), ("dcp-async", "async")]
)
def test_mode_and_stall_are_those_that_the_job_logged(recorder: Recorder, way: str, mode: str) -> None:
    """A trainer with work to do, whoever writes for it; a stall that nothing shows is not told."""
    hold_to_truth(recorder, way, mode)


def test_a_loop_that_only_sleeps_is_told_from_one_that_waits(recorder: Recorder) -> None:
    """It uses no CPU in either case; a child writes."""
    hold_to_truth(recorder, "fork-joined", "sync", "--sleeps")
