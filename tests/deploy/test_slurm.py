"""The hooks of Slurm: what they write, and that they end with 0 whatever happens: a prolog that fails drains a node."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.patience import LIFETIME, PATIENCE_SECONDS, wait_until

from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.processes.process import Process, describe
from ckptprof_collectors.processes.programs import SLURM_JOBS_FOLDER, job_owner_variables

HOOKS = Path(__file__).resolve().parents[2] / "deploy" / "slurm"
SHELLS = (("sh",), ("bash", "--posix"))
JOB = {
    "SLURM_JOB_ID": "8812", "SLURM_JOB_UID": "1000", "SLURM_JOB_USER": "alice", "SLURM_JOB_ACCOUNT": "nlp",
    "SLURM_JOB_PARTITION": "h100", "SLURM_JOB_GPUS": "0,2-3",
}  # fmt: skip


def hook(name: str, run: Path, shell: tuple[str, ...] = ("sh",), **changed: str) -> int:
    """Run one as slurmd does, and return its exit code."""
    environment = {"CKPTPROF_SLURM_DIR": str(run), **JOB, **changed}
    done = subprocess.run(
        [shutil.which(shell[0]) or "", *shell[1:], str(HOOKS / f"{name}.sh")],
        env=environment,
        check=False,
        capture_output=True,
        timeout=PATIENCE_SECONDS,
    )
    assert done.stdout + done.stderr == b""
    return done.returncode


def files(run: Path) -> dict[str, str]:
    """Return what stands in all files below a folder."""
    return {path.relative_to(run).as_posix(): path.read_text() for path in sorted(run.rglob("*")) if path.is_file()}


def told_by(run: Path) -> dict[str, str]:
    """Return what is told of jobs and GPUs, without the lock of the hooks."""
    return {name: text for name, text in files(run).items() if name != "jobs/.lock"}


@pytest.mark.parametrize("shell", SHELLS, ids=["sh", "bash"])
def test_a_job_is_told_while_it_runs(tmp_path: Path, shell: tuple[str, ...]) -> None:
    """Whose it is for root alone, its GPUs for whoever maps them to jobs; two jobs may share one."""
    run = tmp_path / "run"

    assert hook("prolog", run, shell) == 0
    assert hook("prolog", run, shell) == 0  # again, after a requeue
    assert hook("prolog", run, shell, SLURM_JOB_ID="9000", SLURM_JOB_GPUS="3") == 0

    told = told_by(run)
    assert told["jobs/8812"].splitlines() == [
        "SLURM_JOB_UID=1000", "SLURM_JOB_USER=alice", "SLURM_JOB_ACCOUNT=nlp", "SLURM_JOB_PARTITION=h100",
    ]  # fmt: skip
    assert {name: text for name, text in told.items() if name.startswith("gpus/")} == {
        "gpus/0": "8812\n", "gpus/2": "8812\n", "gpus/3": "8812\n9000\n",
    }  # fmt: skip
    assert (run / "jobs/8812").stat().st_mode & 0o777 == 0o600
    assert (run / "gpus/3").stat().st_mode & 0o777 == 0o644
    assert (run / "jobs/.lock").stat().st_mode & 0o777 == 0o600
    assert hook("epilog", run, shell) == 0
    assert set(told_by(run)) == {"gpus/3", "jobs/9000"}
    assert files(run)["gpus/3"] == "9000\n"
    assert hook("epilog", run, shell, SLURM_JOB_ID="9000") == 0
    assert hook("epilog", run, shell, SLURM_JOB_ID="9000") == 0
    assert told_by(run) == {}


def _away(run: Path) -> None:
    """Leave nothing there, and nothing that could be made there."""
    run.write_text("a file")


def _folder_is_a_file(run: Path) -> None:
    run.mkdir()
    (run / "jobs").write_text("a file")


def _full(run: Path) -> None:
    """Let each write fail for want of room."""
    (run / "jobs").mkdir(parents=True)
    (run / "gpus").mkdir()
    for path in (run / "jobs/.8812", run / "gpus/0", run / "gpus/.2"):
        path.symlink_to("/dev/full")


def _in_the_way(run: Path) -> None:
    """Put folders where files are to be written."""
    for path in ("jobs/8812/x", "jobs/.8812/x", "gpus/0/x", "gpus/2/x"):
        (run / path).mkdir(parents=True)


@pytest.mark.parametrize("name", ["prolog", "epilog"])
@pytest.mark.parametrize("shell", SHELLS, ids=["sh", "bash"])
@pytest.mark.parametrize("broken", [_away, _folder_is_a_file, _full, _in_the_way], ids=lambda one: one.__name__)
def test_nothing_that_fails_fails_the_job(name: str, shell: tuple[str, ...], broken: object, tmp_path: Path) -> None:
    """No folder, a file in its place, a full disk, a folder in the place of a file."""
    assert callable(broken)
    broken(tmp_path / "run")

    assert hook(name, tmp_path / "run", shell) == 0


@pytest.mark.mount
@pytest.mark.root
def test_a_full_file_system_fails_no_job(tmp_path: Path) -> None:
    """A real one; what was written in part is taken away."""
    run = tmp_path / "run"
    run.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(run)], check=True)
    try:
        (run / "jobs").mkdir()
        (run / "gpus").mkdir()
        subprocess.run(["dd", "if=/dev/zero", f"of={run}/full"], check=False, capture_output=True)
        assert hook("prolog", run) == 0
        assert "jobs/8812" not in files(run)
        assert hook("epilog", run) == 0
    finally:
        subprocess.run(["umount", str(run)], check=True)


@pytest.mark.parametrize("name", ["prolog", "epilog"])
@pytest.mark.parametrize(
    "changed",
    [
        {"SLURM_JOB_ID": ""}, {"SLURM_JOB_ID": "../../../etc/x"}, {"SLURM_JOB_ID": "1 2"}, {"PATH": "/nonexistent"},
        {"SLURM_JOB_GPUS": "a,,-,9-,7-5,0-99999999999,1e3"}, {"SLURM_JOB_USER": "a\nSLURM_JOB_ACCOUNT=root"},
        {"SLURM_JOB_ACCOUNT": "x" * 100_000}, {"IFS": "8"},
    ],
    ids=lambda one: next(iter(one)) + "=" + next(iter(one.values()))[:12],
)  # fmt: skip
def test_no_value_fails_the_job_or_leads_elsewhere(name: str, changed: dict[str, str], tmp_path: Path) -> None:
    """Nothing is written but below the folder, by the names of jobs and GPUs."""
    (tmp_path / "run").mkdir()

    assert hook(name, tmp_path / "run", **changed) == 0

    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert set(told_by(tmp_path / "run")) <= {"jobs/8812", "gpus/0", "gpus/2", "gpus/3"}


@pytest.mark.parametrize("name", ["prolog", "epilog"])
def test_nobody_is_waited_for(name: str, tmp_path: Path) -> None:
    """A pipe that nobody reads or writes is passed over."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "gpus").mkdir()
    os.mkfifo(tmp_path / "gpus/0")

    assert hook(name, tmp_path) == 0


@pytest.mark.programs("flock")
def test_a_job_that_begins_while_another_ends_keeps_its_gpu(tmp_path: Path) -> None:
    """Its line comes between the reading and the renaming of the epilog: it waits for that, and is written then."""
    run, tools = tmp_path / "run", tmp_path / "tools"
    hook("prolog", run)
    hook("prolog", run, SLURM_JOB_ID="9000", SLURM_JOB_GPUS="3")
    tools.mkdir()
    begun = f"env SLURM_JOB_ID=9100 SLURM_JOB_GPUS=3 PATH=/usr/bin:/bin sh {HOOKS}/prolog.sh 9>&- &"
    waits = f"grep -q -e '-> FLOCK .*:{(run / 'jobs/.lock').stat().st_ino} ' /proc/locks"
    until = f"until {waits} || grep -q 9100 {run}/gpus/3; do sleep 0.01; done"
    (tools / "mv").write_text(f'#!/bin/sh\n{begun}\n{until}\nexec /usr/bin/mv "$@"\n')
    (tools / "mv").chmod(0o755)
    script = (HOOKS / "epilog.sh").read_text().replace("PATH=/usr/bin:/bin", f"PATH={tools}:/usr/bin:/bin")
    (tools / "epilog.sh").write_text(script)

    subprocess.run(["sh", tools / "epilog.sh"], env={"CKPTPROF_SLURM_DIR": str(run), **JOB}, check=True)

    wait_until(lambda: told_by(run).get("gpus/3") == "9000\n9100\n")


@pytest.mark.programs("strace")
@pytest.mark.parametrize(("name", "most"), [("prolog", 4), ("epilog", 3)])
def test_few_programs_are_started_and_nobody_is_asked(name: str, most: int, tmp_path: Path) -> None:
    """The shell itself, mkdir, flock, mv or rm: no Python, no socket, so that a stopped agent holds up no job."""
    log = tmp_path / "calls"
    strace = ["strace", "-f", "-o", str(log), "-e", "trace=execve,socket,connect", "/bin/sh", str(HOOKS / f"{name}.sh")]
    subprocess.run(
        strace, env={"CKPTPROF_SLURM_DIR": str(tmp_path / "run"), **JOB}, check=True, timeout=PATIENCE_SECONDS
    )

    calls = log.read_text()
    assert "socket(" not in calls
    assert 0 < calls.count("= 0\n") <= most


@pytest.mark.root
def test_the_agent_reads_whose_a_job_is(tmp_path: Path) -> None:
    """Of a process of that user, whatever its own environment claims."""
    run = tmp_path / "run"
    hook("prolog", run / "ckptprof-slurm", SLURM_JOB_UID=str(os.getuid()))
    claimed = {**os.environ, "SLURM_JOB_ID": "8812", "SLURM_JOB_ACCOUNT": "others", "SLURM_JOB_PARTITION": "h100"}
    with subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({LIFETIME})"], env=claimed) as child:
        try:
            wait_until(lambda: b"SLURM_JOB_ID" in Path(f"/proc/{child.pid}/environ").read_bytes())  # exec has ended
            process = Process(KernelFs(run=run), child.pid)
            told = describe(process).environment
            process.close()
        finally:
            child.kill()

    assert [told[name] for name in ("SLURM_JOB_USER", "SLURM_JOB_ACCOUNT", "SLURM_JOB_PARTITION")] == [
        "alice", "nlp", "h100",
    ]  # fmt: skip


SCOPE = "/system.slice/slurmstepd.scope"


@pytest.mark.root
@pytest.mark.parametrize(
    ("cgroup", "job", "uid", "is_told"),
    [
        (f"{SCOPE}/job_8812/step_0/user/task_0", "8812", 1000, True),
        (f"{SCOPE}/job_8812/step_0/user/task_0", "9000", 1000, True),
        (f"{SCOPE}/job_9000/step_0/user/task_0", "8812", 1000, False),
        (f"{SCOPE}/sEKNKTV3WPV500/step_0/user/task_0", "8812", 1000, True),
        ("/slurm/uid_1000/job_8812/step_batch", "", 1000, True),
        (None, "8812", 1000, True),
        (None, "8812", 1001, False),
        (None, "8812", None, False),
        (None, "../jobs/8812", 1000, False),
        (None, "", 1000, False),
    ],
)
def test_the_job_of_a_process_is_told_by_its_cgroup(
    cgroup: str | None, job: str, uid: int | None, *, is_told: bool, tmp_path: Path
) -> None:
    """Else by its environment; only to who runs it."""
    hook("prolog", tmp_path / "ckptprof-slurm")

    assert bool(job_owner_variables(tmp_path, cgroup, {"SLURM_JOB_ID": job}, uid)) is is_told


@pytest.mark.root
def test_what_root_alone_did_not_write_is_not_believed(tmp_path: Path) -> None:
    """Another's file, one that others can write to, a link, a pipe, damaged lines."""
    path = tmp_path / SLURM_JOBS_FOLDER / "8812"
    path.parent.mkdir(parents=True)
    lines = "SLURM_JOB_UID=1000\nSLURM_JOB_USER=alice\n"

    def told() -> dict[str, str]:
        return job_owner_variables(tmp_path, None, {"SLURM_JOB_ID": "8812"}, 1000)

    path.write_text(lines)
    assert told() == {"SLURM_JOB_USER": "alice"}
    path.chmod(0o666)
    assert told() == {}
    path.chmod(0o600)
    os.chown(path, 1000, 1000)
    assert told() == {}
    path.rename(path.with_name("9"))
    os.chown(path.with_name("9"), 0, 0)
    path.symlink_to(path.with_name("9"))
    assert told() == {}
    path.unlink()
    os.mkfifo(path)
    assert told() == {}
    path.unlink()
    path.write_bytes(b"SLURM_JOB_UID=1000\nSLURM_JOB_USER=a b\nSLURM_JOB_ACCOUNT=\xff\nHOME=/x\n" + b"A" * 10_000)
    assert told() == {}
