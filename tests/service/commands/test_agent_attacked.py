"""`ckptprof agent` and users who mean it ill: nobody stops it, and nobody makes it look where it must not."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from livecommand import SAVE, Ckptprof, sampler_of, wait_until

from silentfuse import silent

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.xdist_group("live"), pytest.mark.timeout(180)]

USER, OTHER = 65534, 4321
JOB = (Path(__file__).resolve().parents[1] / "swapping_job.py").read_text()
LEVELS = [pytest.param("poll"), pytest.param("trace", marks=pytest.mark.bpf)]


@pytest.fixture
def homes() -> Iterator[dict[int, Path]]:
    """Return a folder for each of two users; not below tmp_path, which is closed to them."""
    base = Path(tempfile.mkdtemp(prefix="ckptprof-attack-", dir="/var/tmp"))
    base.chmod(0o755)
    made = {}
    for user in (USER, OTHER):
        made[user] = base / str(user)
        made[user].mkdir()
        os.chown(made[user], user, user)
    yield made
    shutil.rmtree(base, ignore_errors=True)


def as_user(user: int, program: str, *arguments: str, cwd: Path) -> subprocess.Popen[bytes]:
    """Start a program in Python that gives up all privileges: the interpreter itself may lie where users may not go."""
    become = "import __future__, ctypes, os, numpy, pathlib, threading, time\n"
    become += f"os.setgroups([]); os.setgid({user}); os.setuid({user})\n"
    become += f"exec(compile({program!r}, 'job', 'exec'), {{'__name__': '__main__'}})"
    return subprocess.Popen([sys.executable, "-c", become, *arguments], cwd=cwd)


def switches(process: psutil.Process) -> int:
    """Return how often the main thread of a process has gone to sleep."""
    status = Path(f"/proc/{process.pid}/task/{process.pid}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split(None, 1)[0])


def longest_stillness(process: psutil.Process, seconds: float) -> float:
    """Return for how long at most the main thread of a process did nothing within a while, in seconds."""
    longest, last, since = 0.0, switches(process), time.monotonic()
    until = since + seconds
    while (now := time.monotonic()) < until:
        if (count := switches(process)) != last:
            last, since = count, now
        longest = max(longest, now - since)
        time.sleep(0.05)
    return longest


@pytest.mark.parametrize("level", LEVELS)
def test_a_folder_swapped_for_a_mount_that_hangs_stops_nobody(
    ckptprof: Ckptprof, homes: dict[int, Path], level: str
) -> None:
    """The sampler ticks on, the save of another user is seen whole, and the agent ends in its time."""
    agent = ckptprof.start("agent", "--db", str(ckptprof.database), "--no-metrics", "--level", level)
    wait_until(ckptprof.database.exists)
    sampler = sampler_of(agent)
    with silent(homes[USER] / "silent", USER) as mount:
        attacker = as_user(USER, JOB, str(homes[USER]), str(mount.place / "x"), "20", cwd=homes[USER])
        time.sleep(5)
        victim = as_user(OTHER, f"{SAVE}time.sleep(1)", "3", cwd=homes[OTHER])
        still = longest_stillness(sampler, 16)
        assert (victim.wait(60), attacker.wait(60)) == (0, 0)
        same = sampler_of(agent).pid == sampler.pid
        time.sleep(2)
        began = time.monotonic()
        agent.send_signal(signal.SIGTERM)
        code = agent.wait(60)
        seconds = time.monotonic() - began

    assert still < 1.5
    assert same
    assert {f"ckpt_{n}.npy" for n in range(3)} <= set(ckptprof.steps())
    assert (code, seconds < 15) == (0, True)
