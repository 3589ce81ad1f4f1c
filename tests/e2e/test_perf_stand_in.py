"""Where eBPF cannot be had, perf events tell a job's saves as exactly, and each says what they did not see."""

from __future__ import annotations

import pytest
from recorder import Recorder, check_job

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("live"),
    pytest.mark.root,
    pytest.mark.bpf,  # for the host's pids: the reason is to be libbpf
    pytest.mark.perf,
]


def test_a_job_is_traced_without_ebpf(recorder: Recorder) -> None:
    """Each save with all its bytes; the level is `trace`, by perf events, and the reason for them is told."""
    recorder.level = "trace"
    recorder.environment["CKPTPROF_LIBBPF"] = "/nonexistent/libbpf.so"
    result = recorder.run(*recorder.example("train_numpy.py", "--saves", "3", "--size-mb", "60", "--interval", "1"))
    saves = [one for one in recorder.checkpoints() if one["kind"] == "save"]
    sizes = sorted(path.stat().st_size for path in (recorder.work / "job").rglob("*.npz"))

    check_job(result)
    assert len(saves) == 3
    for save in saves:
        assert any("by perf events, because /nonexistent/libbpf.so" in sentence for sentence in save["blind"])
        assert any("io_uring" in sentence for sentence in save["blind"])
        assert not any("single operations" in sentence for sentence in save["blind"])
        assert sizes[-1] <= save["bytes"] <= sizes[-1] * 1.01
