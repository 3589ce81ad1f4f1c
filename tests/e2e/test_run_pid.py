"""`ckptprof run --pid`: it joins a job that runs already, tells of it and of nobody else, and leaves it as it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from recorder import PATIENCE_SECONDS, Recorder, wait_until

pytestmark = pytest.mark.slow

# Saves in a child that is there before it is joined, as the ranks of a launcher are
JOB = """
import os, pathlib, subprocess, sys, time, numpy
if sys.argv[1] == "launch":
    sys.exit(subprocess.run([sys.executable, __file__, sys.argv[2]]).returncode)
state, here = numpy.random.rand(int(sys.argv[1])), pathlib.Path("checkpoints")
here.mkdir()
pathlib.Path("ready").touch()
while not pathlib.Path("go").exists():
    time.sleep(0.05)
for step in range(1, 5):
    time.sleep(1)  # a step of training
    with open(here / f"step_{step}.npy", "wb") as file:
        numpy.save(file, state)
        os.fsync(file.fileno())
pathlib.Path("saved").touch()
while not pathlib.Path("end").exists():
    time.sleep(0.05)
"""


class Jobs:
    """Jobs that nobody watches yet."""

    def __init__(self, recorder: Recorder) -> None:
        """Start none."""
        self._recorder = recorder
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, size: int) -> tuple[subprocess.Popen[bytes], Path]:
        """Start one in a folder of its own, and wait until it trains."""
        folder = self._recorder.work / name
        folder.mkdir()
        (folder / "train.py").write_text(JOB)
        job = subprocess.Popen([sys.executable, "train.py", "launch", str(size)], cwd=folder, start_new_session=True)
        self.started.append(job)
        wait_until((folder / "ready").exists)
        return job, folder


@pytest.fixture
def jobs(recorder: Recorder) -> Iterator[Jobs]:
    """Return it; whatever a failed test left running is ended."""
    made = Jobs(recorder)
    yield made
    for job in made.started:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()


def joined(recorder: Recorder, pid: int) -> tuple[subprocess.Popen[bytes], Path]:
    """Join a process, and wait until it is watched."""
    said = recorder.work / "said"
    with said.open("wb") as stream:
        command = recorder.ckptprof("run", *recorder.options, "--pid", str(pid))
        watching = subprocess.Popen(command, stderr=stream, env=recorder.environment, cwd=recorder.work)
    recorder.started.append(watching)
    wait_until(lambda: b"watching process" in said.read_bytes() or watching.poll() is not None, said.read_text)
    return watching, said


@pytest.mark.parametrize(("level", "leave"), [("poll", True), pytest.param("trace", False, marks=pytest.mark.bpf)])
def test_it_tells_of_the_job_and_of_nobody_else(recorder: Recorder, jobs: Jobs, level: str, *, leave: bool) -> None:
    """Until it ends, or until it is left, which it does not notice; another job saves meanwhile."""
    recorder = recorder.at(level)
    job, folder = jobs.start("mine", 3_000_000)
    other, others = jobs.start("other", 5_000_000)  # polled, equal sizes at one time could be anybody's
    watching, said = joined(recorder, job.pid)
    (folder / "go").touch()
    (others / "go").touch()
    wait_until((folder / "saved").exists, said.read_text)
    if leave:
        watching.send_signal(signal.SIGINT)
    else:
        (folder / "end").touch()

    assert watching.wait(PATIENCE_SECONDS) == 0, said.read_text()
    assert (job.poll() is None) is leave
    assert other.poll() is None
    found = [one for one in recorder.checkpoints() if one["kind"] == "save"]
    assert [Path(one["path"]).name for one in found] == [f"step_{step}.npy" for step in range(1, 5)], said.read_text()
    assert {str(Path(one["path"]).parent.parent) for one in found} == {str(folder)}
    assert "Answer" in said.read_text()


def test_a_process_that_is_not_there_is_an_error(recorder: Recorder) -> None:
    """So is a thread, and a command beside it; each is one line and a hint."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    wrong = {
        f"there is no process {ended.pid}": ("--pid", str(ended.pid)),
        "a command and --pid were both given": ("--pid", str(os.getpid()), "--", "true"),
        "no command was given": (),
    }
    for text, arguments in wrong.items():
        result = recorder.call("run", *arguments)

        assert result.returncode in (1, 2)
        assert result.stderr.decode().startswith(f"ckptprof: {text}\nhint: ")


@pytest.mark.root
def test_a_process_of_another_user_is_refused(recorder: Recorder) -> None:
    """Before anything is opened."""
    command = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", *recorder.command]
    result = subprocess.run([*command, "run", "--pid", str(os.getpid())], capture_output=True, check=False)
    if b"Permission denied" in result.stderr:
        pytest.skip("nobody may not execute this environment")

    assert (result.returncode, result.stderr.decode().partition("\n")[0]) == (
        5,
        f"ckptprof: process {os.getpid()} cannot be watched by this user",
    )
