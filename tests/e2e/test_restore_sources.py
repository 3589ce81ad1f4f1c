"""Real restores, cold and warm, by read and by mmap, by one process and by two ranks of one file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from recorder import JobBrokeError, Recorder, check_job

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("live"),
    pytest.mark.torch,
]

JOB = Path(__file__).with_name("reading_job.py")
SIZE_BYTES = 6 * (16 << 20)


def _is_in_memory(path: Path) -> bool:
    kind = subprocess.run(["stat", "-f", "-c", "%T", str(path)], capture_output=True, text=True, check=True)
    return kind.stdout.strip() in ("tmpfs", "ramfs")


@pytest.mark.root
@pytest.mark.bpf
def test_restores_tell_where_they_came_from(recorder: Recorder) -> None:
    """Each as the job made it: cold or warm, its distinct bytes once, and both ranks with their numbers."""
    if _is_in_memory(recorder.work):
        pytest.skip("the files of this test are in memory: nothing can be cold")
    tracing, polling = recorder.at("trace"), recorder.at("poll")
    done = polling.run_with([tracing], sys.executable, str(JOB), str(recorder.work))
    check_job(done)
    truth = [json.loads(line) for line in done.stdout.splitlines()]
    if len(truth) != 4:
        raise JobBrokeError(f"its log is not whole: {truth}")

    for one in (tracing, polling):
        restores = [seen for seen in one.checkpoints() if seen["kind"] == "restore"]
        for true in truth:
            near = [seen for seen in restores if abs(seen["start_ns"] / 1e9 - true["start"]) < 1.5]
            if not near and one.level == "poll" and true["cache"] == "warm":
                continue  # over in a few hundredths of a second: polling sees it by luck of the clock (docs/limits.md)
            assert len(near) == 1, (f"at the level {one.level}", true, restores)
            hold_to_truth(near[0], true, f"at the level {one.level}: {true}: {near[0]}")


def hold_to_truth(seen: dict[str, Any], true: dict[str, Any], who: str) -> None:
    """Assert what is reported of one restore."""
    assert seen["cache"] == true["cache"], who
    if true["mapped"]:  # what comes in by large pages comes without a word: a lower bound, and said to be one
        assert 0.3 * SIZE_BYTES <= seen["unique_bytes"] <= 1.05 * SIZE_BYTES, who
        assert seen["unique_bytes"] >= 0.95 * SIZE_BYTES or any("fault" in text for text in seen["blind"]), who
    else:
        assert seen["unique_bytes"] == pytest.approx(SIZE_BYTES, rel=0.05), who
        assert seen["bytes"] >= 0.95 * SIZE_BYTES * true["ranks"], who
    assert len(seen["writers"]) == true["ranks"], who
    least = (0.3 if true["mapped"] else 0.9) * SIZE_BYTES
    assert (seen["storage_bytes"] >= least) == (true["cache"] == "cold"), who
    assert not any("page cache and which" in text for text in seen["blind"]), who
    if true["ranks"] == 2:
        assert sorted(writer["rank"] for writer in seen["writers"]) == [0, 1], who
    assert all(writer["end_ns"] >= writer["start_ns"] >= seen["start_ns"] for writer in seen["writers"]), who
