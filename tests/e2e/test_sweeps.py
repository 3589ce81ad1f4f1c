"""Independent trainings under one launcher are jobs of their own, though they save at the same second."""

from __future__ import annotations

import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from recorder import EXAMPLES, Recorder

JOBS = Path(__file__).resolve().parent / "jobs"
SAVES = 2
TRAIN = (
    sys.executable, str(EXAMPLES / "train_numpy.py"), "--format", "npz", "--size-mb", "40", "--interval", "1.2",
    "--saves", str(SAVES), "--keep", "9",
)  # fmt: skip
LAUNCHERS = {
    "xargs": "seq 2 | xargs -P2 -I{{}} {train} --dir {folder}/run{{}}",
    "parallel": "seq 2 | parallel --will-cite -j2 {train} --dir {folder}/run{{}}",
    "shell": "for n in 1 2; do {train} --dir {folder}/run$n & done; wait",
    "popen": "{python} {sweep} popen {folder} {train}",
    "workers": "{python} {sweep} workers {folder} {train}",
}


@pytest.mark.root
@pytest.mark.bpf
@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.xdist_group("jobs")
@pytest.mark.flaky(reruns=1, only_rerun="agent poll")
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_two_trainings_of_a_sweep_are_two_jobs(recorder: Recorder, launcher: str) -> None:
    """Each save is told for itself, by `run` at trace and by a polling agent; each training has a job of its own."""
    if launcher == "parallel" and shutil.which("parallel") is None:
        pytest.skip("not installed: parallel")
    command = LAUNCHERS[launcher].format(
        train=shlex.join(TRAIN), folder=recorder.work, python=sys.executable, sweep=JOBS / "sweep.py"
    )
    agent = replace(recorder, name="agent.db", level="poll")
    recorder.level = "trace"

    with agent.agent():
        assert recorder.run("sh", "-c", command).returncode == 0

    for how, seen in (("run trace", recorder), ("agent poll", agent)):
        saves = seen.checkpoints()
        jobs = {(run_of(save), save["job"]) for save in saves}
        assert sorted(run_of(save) for save in saves) == ["run1"] * SAVES + ["run2"] * SAVES, (how, saves)
        assert len(jobs) == len({job for _, job in jobs}) == 2, (how, jobs)
        assert all(save["ranks"] == 1 for save in saves), how


def run_of(save: dict[str, str]) -> str:
    """Return which of both trainings a save is of; a name that is neither's if it is told for both."""
    return Path(save["path"]).parent.name
