"""Independent trainings under one launcher are jobs of their own, though they save at the same second."""

from __future__ import annotations

import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from recorder import EXAMPLES, Recorder, check_job

JOBS = Path(__file__).resolve().parent / "jobs"
SAVES = 2
TRAIN = (
    sys.executable, str(EXAMPLES / "train_numpy.py"), "--format", "npz", "--size-mb", "120", "--interval", "1.2",
    "--saves", str(SAVES), "--keep", "9",
)  # fmt: skip
# One after another, each in a folder of its own; the captures sweep-* hold xargs, a shell and workers with tasks
LAUNCHERS = {
    "parallel": "seq 2 | parallel --will-cite -j2 {train} --dir {folder}/run{{}}",
    "popen": "{python} {sweep} popen {folder} {train}",
}


@pytest.mark.root
@pytest.mark.bpf
@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.xdist_group("live")
def test_two_trainings_of_a_sweep_are_two_jobs(recorder: Recorder) -> None:
    """Each save is told for itself, by `run` at trace and by a polling agent; each training has a job of its own."""
    if shutil.which("parallel") is None:
        pytest.skip("not installed: parallel")
    sweeps = [
        command.format(
            train=shlex.join(TRAIN), folder=recorder.work / launcher, python=sys.executable, sweep=JOBS / "sweep.py"
        )
        for launcher, command in LAUNCHERS.items()
    ]
    agent = replace(recorder, name="agent.db", level="poll")
    recorder.level = "trace"

    with agent.agent():
        check_job(recorder.run("sh", "-c", " && ".join(sweeps)))

    for how, seen in (("run trace", recorder), ("agent poll", agent)):
        told = seen.checkpoints()
        for launcher in LAUNCHERS:
            saves = [save for save in told if Path(save["path"]).is_relative_to(recorder.work / launcher)]
            jobs = {(run_of(save), save["job"]) for save in saves}
            assert sorted(run_of(save) for save in saves) == ["run1"] * SAVES + ["run2"] * SAVES, (how, saves)
            assert len(jobs) == len({job for _, job in jobs}) == 2, (how, jobs)
            assert all(save["ranks"] == 1 for save in saves), how
        assert len(told) == 2 * SAVES * len(LAUNCHERS), (how, told)


def run_of(save: dict[str, str]) -> str:
    """Return which of both trainings a save is of; a name that is neither's if it is told for both."""
    return Path(save["path"]).parent.name
