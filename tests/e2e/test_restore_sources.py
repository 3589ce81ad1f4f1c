"""Real restores, cold and warm, by read and by mmap, by one process and by two ranks of one file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from recorder import Recorder

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("live"), pytest.mark.torch, pytest.mark.timeout(240)]

JOB = Path(__file__).with_name("reading_job.py")
SIZE_BYTES = 6 * (16 << 20)


def _is_in_memory(path: Path) -> bool:
    kind = subprocess.run(["stat", "-f", "-c", "%T", str(path)], capture_output=True, text=True, check=True)
    return kind.stdout.strip() in ("tmpfs", "ramfs")


@pytest.mark.parametrize(
    "level", [pytest.param("poll"), pytest.param("trace", marks=[pytest.mark.root, pytest.mark.bpf])]
)
def test_restores_tell_where_they_came_from(recorder: Recorder, level: str) -> None:
    """Each as the job made it: cold or warm, its distinct bytes once, and both ranks with their numbers."""
    if _is_in_memory(recorder.work):
        pytest.skip("the files of this test are in memory: nothing can be cold")
    recorder.level = level
    done = recorder.run(sys.executable, str(JOB), str(recorder.work))
    assert done.returncode == 0, done.stderr.decode()
    truth = [json.loads(line) for line in done.stdout.splitlines()]
    restores = [one for one in recorder.checkpoints() if one["kind"] == "restore"]

    assert len(truth) == 4
    for true in truth:
        near = [one for one in restores if abs(one["start_ns"] / 1e9 - true["start"]) < 1.5]
        if not near and level == "poll" and true["cache"] == "warm":
            continue  # over in a few hundredths of a second: polling sees it by luck of the clock (README, limits)
        assert len(near) == 1, (true, restores)
        (seen,) = near
        assert seen["cache"] == true["cache"], (true, seen)
        if true["mapped"]:  # what comes in by large pages comes without a word: a lower bound, and said to be one
            assert 0.3 * SIZE_BYTES <= seen["unique_bytes"] <= 1.05 * SIZE_BYTES
            assert seen["unique_bytes"] >= 0.95 * SIZE_BYTES or any("fault" in text for text in seen["blind"])
        else:
            assert seen["unique_bytes"] == pytest.approx(SIZE_BYTES, rel=0.05)
            assert seen["bytes"] >= 0.95 * SIZE_BYTES * true["ranks"]
        assert len(seen["writers"]) == true["ranks"]
        least = (0.3 if true["mapped"] else 0.9) * SIZE_BYTES
        assert (seen["storage_bytes"] >= least) == (true["cache"] == "cold")
        assert not any("page cache and which" in text for text in seen["blind"])
        if true["ranks"] == 2:
            assert sorted(writer["rank"] for writer in seen["writers"]) == [0, 1]
        assert all(writer["end_ns"] >= writer["start_ns"] >= seen["start_ns"] for writer in seen["writers"])
