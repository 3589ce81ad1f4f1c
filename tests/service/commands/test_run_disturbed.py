"""`ckptprof run` when something goes wrong beside it: the command goes on, its exit code passes, the rest is told."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from livecommand import SAVE, Ckptprof, fill, has_ended, sampler_of, wait_until
from tests.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.slow

IN_HALVES = """
import numpy, pathlib, time
state = numpy.ones(8_000_000)
raw = state.data.cast("B")

def wait(name):
    while not pathlib.Path(name).exists():
        time.sleep(0.01)

for step in range(4):
    time.sleep(1)
    part = pathlib.Path(f"ckpt_{step}.npy.tmp")
    with part.open("wb", buffering=0) as file:
        numpy.lib.format.write_array_header_1_0(file, numpy.lib.format.header_data_from_array_1_0(state))
        file.write(raw[:32_000_000])
        if step == 2:
            pathlib.Path("half").touch()
            wait("go")
        file.write(raw[32_000_000:])
    part.rename(f"ckpt_{step}.npy")
    if step == 2:
        wait("on")
time.sleep(1)
"""


def saving(ckptprof: Ckptprof, saves: int, database: Path | None = None) -> subprocess.Popen[bytes]:
    """Start a job that saves once a second and exits with 9."""
    job = f"{SAVE}raise SystemExit(9)"
    where = str(database or ckptprof.database)
    return ckptprof.start("run", "--db", where, "--", sys.executable, "-c", job, str(saves))


def test_a_killed_sampler_costs_sight_and_nothing_else(ckptprof: Ckptprof) -> None:
    """Said at once and in the report as a gap; the command runs on and its exit code passes."""
    process = saving(ckptprof, 3)
    wait_until((ckptprof.work / "ckpt_0.npy").exists)

    sampler_of(process).kill()
    _, err = process.communicate(timeout=PATIENCE_SECONDS)

    assert process.returncode == 9
    assert (ckptprof.work / "ckpt_2.npy").exists()
    assert len(re.findall(rb"the command (is no longer|was not) monitored", b" ".join(err.split()))) == 2
    assert b"Gaps" in err


def test_a_stopped_sampler_holds_the_end_up_for_a_moment_only(ckptprof: Ckptprof) -> None:
    """One that hangs when the command ends is waited for, then ended."""
    process = saving(ckptprof, 2)
    sampler = sampler_of(process)
    wait_until((ckptprof.work / "ckpt_0.npy").exists)

    sampler.suspend()
    process.communicate(timeout=PATIENCE_SECONDS)

    assert process.returncode == 9
    assert not sampler.is_running()


def halves(ckptprof: Ckptprof, level: str) -> subprocess.Popen[bytes]:
    """Start a job that saves four times; it awaits `go` in the middle of the third save, and `on` after it."""
    command = [sys.executable, "-c", IN_HALVES]
    return ckptprof.start("run", "--level", level, "--db", str(ckptprof.database), "--", *command)


def told(ckptprof: Ckptprof) -> list[dict[str, Any]]:
    """Return the saves of a database in their order."""
    listed = ckptprof.call("list", "--json", "--db", str(ckptprof.database)).stdout
    found: list[dict[str, Any]] = json.loads(listed)["checkpoints"]
    return sorted(found, key=lambda one: int(one["start_ns"]))


@pytest.mark.xdist_group("live")
@pytest.mark.root
@pytest.mark.bpf
@pytest.mark.programs("strace")
def test_a_trace_that_is_lost_in_the_midst_of_a_save_costs_no_save(ckptprof: Ckptprof, tmp_path: Path) -> None:
    """Its maps cannot be read any more: of that one a part was seen, which is said, and polling finds the next one."""
    process = halves(ckptprof, "trace")
    sampler = sampler_of(process)
    wait_until((ckptprof.work / "half").exists)

    log = tmp_path / "strace"
    inject = ["-e", "trace=bpf", "-e", "inject=bpf:error=EIO", "-o", str(log)]
    with subprocess.Popen(["strace", "-f", *inject, "-p", str(sampler.pid)]) as strace:
        wait_until(lambda: log.exists() and "INJECTED" in log.read_text())
        strace.terminate()
    for name in ("go", "on"):
        (ckptprof.work / name).touch()
    process.communicate(timeout=PATIENCE_SECONDS)

    found = told(ckptprof)
    assert [(one["kind"], one["step"]) for one in found] == [("save", n) for n in range(4)]
    whole = [0, 1, 3]
    assert [(found[n]["status"], found[n]["bytes"]) for n in whole] == [
        ("complete", pytest.approx(64_000_000, rel=0.02))
    ] * 3
    assert (found[2]["status"], found[2]["stall_ns"]) == ("incomplete", None)
    assert any(one["name"] == "cut-at-end" for one in found[2]["evidence"])


def test_a_sampler_that_does_not_come_up_keeps_nobody_from_training(ckptprof: Ckptprof) -> None:
    """Even where nothing but the trace was wanted: that is said, and the exit code is the command's."""
    process = ckptprof.start("run", "--level", "trace", "--db", str(ckptprof.database), "--", "sh", "-c", "exit 7")
    sampler_of(process).suspend()

    _, err = process.communicate(timeout=PATIENCE_SECONDS)

    assert process.returncode == 7
    assert b"starts without monitoring" in err


def test_a_killed_recorder_leaves_the_command_alone(ckptprof: Ckptprof) -> None:
    """Kill -9 of ckptprof: the command finishes by itself, the sampler ends, and the database is whole."""
    process = saving(ckptprof, 3)
    wait_until((ckptprof.work / "ckpt_0.npy").exists)
    children = psutil.Process(process.pid).children()
    sampler = sampler_of(process)
    command = next(child for child in children if child.pid != sampler.pid)

    process.kill()
    process.wait()

    wait_until(lambda: has_ended(sampler))
    wait_until((ckptprof.work / "ckpt_2.npy").exists)
    wait_until(lambda: has_ended(command))
    assert ckptprof.call("report", "--db", str(ckptprof.database)).returncode in (0, 3)


@pytest.mark.xdist_group("live")
@pytest.mark.root
def test_a_disk_that_fills_up_costs_no_report(ckptprof: Ckptprof, small_disk: Path) -> None:
    """What cannot be stored is in the report at the end, and said; the command notices nothing."""
    database = small_disk / "ckptprof.db"
    process = saving(ckptprof, 3, database)
    wait_until((ckptprof.work / "ckpt_0.npy").exists)

    fill(small_disk)
    _, err = process.communicate(timeout=PATIENCE_SECONDS)

    assert process.returncode == 9
    assert b"no space left on the disk" in err
    assert b"not everything could be stored" in err
    assert [err.count(f"ckpt_{number}.npy".encode()) for number in range(3)] == [1, 1, 1]
    assert ckptprof.call("report", "--db", str(database)).returncode in (0, 3)


@pytest.mark.root
def test_a_full_disk_at_the_start_keeps_nobody_from_training(ckptprof: Ckptprof, small_disk: Path) -> None:
    """The command runs, and the report comes."""
    fill(small_disk)

    result = ckptprof.call("run", "--db", str(small_disk / "x.db"), "--", "sh", "-c", "echo ran; exit 9")

    assert (result.returncode, result.stdout) == (9, b"ran\n")
    assert b"checkpoints are not stored, only reported at the end" in result.stderr


@pytest.mark.root
def test_a_read_only_disk_is_said_before_the_command_starts(ckptprof: Ckptprof, small_disk: Path) -> None:
    """Here nothing changes by itself: better to know it before a day of training."""
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)

    result = ckptprof.call("run", "--db", str(small_disk / "x.db"), "--", "echo", "ran")

    assert (result.returncode, result.stdout) == (6, b"")
    assert b"Read-only" in result.stderr


_WITHOUT_A_HOME = """
import sys
from pathlib import Path
from ckptprof.cli.main import main
from ckptprof.service.commands import running
running.default_path = lambda: Path("home/ckptprof.db")
raise SystemExit(main(["run", *sys.argv[1:], "--", sys.executable, "-c", "print(1); raise SystemExit(9)"]))
"""


@pytest.mark.parametrize(("named", "code", "printed"), [((), 9, "1\n"), (("--db", "home/x.db"), 6, "")])
def test_a_home_that_takes_no_database_keeps_nobody_from_training(
    named: tuple[str, ...], code: int, printed: str, tmp_path: Path
) -> None:
    """Who named the database made a mistake, and is told before the command starts; who did not made none."""
    (tmp_path / "home").touch()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CKPTPROF")}
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_A_HOME, *named],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=environment,
    )

    assert (done.returncode, done.stdout) == (code, printed)
    assert ("checkpoints are not stored, only reported at the end" in done.stderr) is (not named)


@pytest.mark.xdist_group("live")
def test_beside_an_agent_a_run_is_reported_and_stored_by_the_agent(ckptprof: Ckptprof) -> None:
    """The agent holds the database and sees the command too: nobody is refused, nothing is stored twice."""
    agent = ckptprof.start("agent", "--no-metrics", "--db", str(ckptprof.database))
    ckptprof.await_sight()

    process = saving(ckptprof, 2)
    _, err = process.communicate(timeout=PATIENCE_SECONDS)

    def mine() -> list[str]:
        return [step for step in ckptprof.steps() if re.fullmatch(r"ckpt_\d.npy", step)]

    wait_until(mine)
    agent.send_signal(signal.SIGTERM)
    agent.communicate(timeout=PATIENCE_SECONDS)

    assert process.returncode == 9
    assert b"--db" in err
    assert 1 <= len(re.findall(rb"ckpt_\d.npy", err)) <= 2
    assert len(mine()) == len(set(mine()))


@pytest.mark.xdist_group("live")
def test_two_runs_share_one_database(ckptprof: Ckptprof) -> None:
    """One user, two jobs, the default database: both are recorded."""
    processes = [saving(ckptprof, 2), saving(ckptprof, 2)]
    for process in processes:
        process.communicate(timeout=PATIENCE_SECONDS)

    assert [process.returncode for process in processes] == [9, 9]
    assert len(ckptprof.steps()) >= 2
    report = json.loads(ckptprof.call("report", "--json", "--db", str(ckptprof.database)).stdout)
    assert not [gap for gap in report["watched"]["gaps"] if "killed" in gap["reason"]]


ORPHANS = """
import os, pathlib, sys, time
for _ in range(int(sys.argv[1])):
    if (child := os.fork()) == 0:
        if os.fork() == 0:
            os._exit(0)
        os._exit(0)
    os.waitpid(child, 0)
pathlib.Path("forked").touch()
while not pathlib.Path("seen").exists():
    time.sleep(0.05)
"""


def test_a_storm_of_orphans_leaves_no_zombies(ckptprof: Ckptprof) -> None:
    """We are the parent of whatever the command orphans: each is reaped, and the command's code is still its own."""
    process = ckptprof.start("run", "--db", str(ckptprof.database), "--", sys.executable, "-c", ORPHANS, "500")
    wait_until((ckptprof.work / "forked").exists)

    def zombies() -> list[psutil.Process]:
        return [one for one in psutil.Process(process.pid).children() if one.status() == psutil.STATUS_ZOMBIE]

    wait_until(lambda: not zombies(), zombies)
    (ckptprof.work / "seen").touch()
    process.communicate(timeout=PATIENCE_SECONDS)

    assert process.returncode == 0


DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        exec(sys.argv[2])
        os._exit(0)
    os._exit(0)
os.wait()
while not os.path.exists("saved"):
    time.sleep(0.1)
"""


@pytest.mark.xdist_group("live")
def test_a_daemonised_writer_is_seen(ckptprof: Ckptprof) -> None:
    """A checkpoint daemon in a session of its own, orphaned, is a descendant all the same."""
    result = ckptprof.run(sys.executable, "-c", DAEMON, "1", f"{SAVE}time.sleep(1)\nopen('saved', 'w').close()\n")

    assert result.returncode == 0
    assert ckptprof.steps() == ["ckpt_0.npy"], result.stderr
