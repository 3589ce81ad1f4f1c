"""An agent that dies or is restarted in the midst of a save: one event, told as seen in part, and the gap is said."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from livecommand import Ckptprof, sampler_of, wait_until
from tests.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.slow

JOB = """
import io, numpy, pathlib, sys, time
state = numpy.random.bytes(64_000_000)
stream = io.BytesIO()
numpy.save(stream, numpy.frombuffer(state, dtype='u1'))
data = stream.getvalue()
folder = pathlib.Path('saves')
folder.mkdir()
for step in map(int, sys.argv[1:]):
    while pathlib.Path(f'hold_{step}').exists():
        time.sleep(0.05)
    pause = 0.2 if step == 3 else 0.005
    with open(folder / f'ckpt_{step}.npy', 'wb', buffering=0) as file:
        for at in range(0, len(data), 1_000_000):
            file.write(data[at:at + 1_000_000])
            time.sleep(pause)
            while step == 3 and at > 50_000_000 and not pathlib.Path('watched').exists():
                time.sleep(0.05)
    time.sleep(3)
time.sleep(1)
"""
WHOLE_BYTES = 64_000_128


LEVELS = ("trace", "poll")


def database(ckptprof: Ckptprof, level: str) -> Path:
    """Return where the agent of a level stores; all of them watch one job."""
    return ckptprof.database.with_name(f"{level}.db")


def agent(ckptprof: Ckptprof, level: str) -> subprocess.Popen[bytes]:
    """Start an agent."""
    arguments = ("--level", level, "--no-metrics", "--db", str(database(ckptprof, level)))
    return ckptprof.start("agent", *arguments, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def report(ckptprof: Ckptprof, level: str) -> dict[str, Any]:
    """Return what an agent has stored; nothing before it has begun."""
    told = ckptprof.call("report", "--json", "--db", str(database(ckptprof, level))).stdout
    return dict(json.loads(told)) if told else {"watched": {"start_ns": None, "gaps": []}, "checkpoints": []}


def await_sight(ckptprof: Ckptprof, *, gaps: int = 0) -> None:
    """Wait until each agent watches, after so many gaps: a busy host takes its time to start one."""

    def watched(level: str) -> bool:
        time.sleep(0.5)
        said = report(ckptprof, level)["watched"]
        return said["start_ns"] is not None and len(said["gaps"]) >= gaps

    for level in LEVELS:
        wait_until(functools.partial(watched, level))


def end(watching: dict[str, subprocess.Popen[bytes]]) -> None:
    """End the agents as systemd does."""
    for one in watching.values():
        one.send_signal(signal.SIGTERM)
    for one in watching.values():
        one.wait(timeout=PATIENCE_SECONDS)


def saves(ckptprof: Ckptprof, level: str, step: int) -> list[dict[str, Any]]:
    """Return the saves of a step of our job that are stored; an agent sees those of other tests, too."""
    found = report(ckptprof, level)["checkpoints"]
    own = [one for one in found if str(one["path"]).startswith(str(ckptprof.work))]
    return [one for one in own if one["kind"] == "save" and one["step"] == step]


@pytest.mark.root
@pytest.mark.bpf
@pytest.mark.parametrize("done", ["agent-killed", "agent-restarted", "sampler-killed"])
def test_a_save_in_whose_midst_it_ends_is_one_event(ckptprof: Ckptprof, done: str) -> None:
    """Of 64 MB in 13 s; what of it was seen is told as a part, and the saves before and after it as ever."""
    watching = {level: agent(ckptprof, level) for level in LEVELS}
    await_sight(ckptprof)
    job = subprocess.Popen([sys.executable, "-c", JOB, "2", "3", "4"], cwd=ckptprof.work)
    slow = Path(ckptprof.work / "saves" / "ckpt_3.npy")
    wait_until(lambda: slow.exists() and slow.stat().st_size > WHOLE_BYTES * 0.35)
    for level, one in watching.items():
        if done == "sampler-killed":
            sampler = sampler_of(one)
            sampler.kill()
            sampler.wait(timeout=PATIENCE_SECONDS)
        else:
            os.kill(one.pid, signal.SIGKILL if done == "agent-killed" else signal.SIGTERM)
            one.wait(timeout=PATIENCE_SECONDS)
            watching[level] = agent(ckptprof, level)
    await_sight(ckptprof, gaps=1)
    (ckptprof.work / "watched").touch()
    assert slow.stat().st_size < WHOLE_BYTES * 0.95
    assert job.wait(timeout=PATIENCE_SECONDS) == 0
    for level in LEVELS:
        wait_until(lambda level=level: saves(ckptprof, level, 4))
    end(watching)

    for level in LEVELS:
        (one,) = saves(ckptprof, level, 3)
        assert one["status"] == "incomplete", level
        assert 0 < one["bytes"] <= WHOLE_BYTES * 1.02, level
        assert any("sampler was restarted" in text for text in one["limitations"]), (level, one["limitations"])
        assert one["end_ns"] - one["start_ns"] > 10e9, level
        assert [other["status"] for other in saves(ckptprof, level, 4)] == ["complete"], level


@pytest.mark.root
@pytest.mark.bpf
def test_what_ended_before_it_is_killed_is_told_by_the_next(
    ckptprof: Ckptprof, record_property: Callable[[str, object], None]
) -> None:
    """A save that ended two seconds ago, which is most often not told yet, is told once."""
    watching = {level: agent(ckptprof, level) for level in LEVELS}
    await_sight(ckptprof)
    held = ckptprof.work / "hold_2"
    held.touch()
    job = subprocess.Popen([sys.executable, "-c", JOB, "1", "2"], cwd=ckptprof.work)
    last = Path(ckptprof.work / "saves" / "ckpt_1.npy")
    wait_until(lambda: last.exists() and last.stat().st_size == WHOLE_BYTES)
    time.sleep(2)
    for one in watching.values():
        os.kill(one.pid, signal.SIGKILL)
        one.wait(timeout=PATIENCE_SECONDS)
    before = [saves(ckptprof, level, 1) for level in LEVELS]
    watching = {level: agent(ckptprof, level) for level in LEVELS}
    await_sight(ckptprof, gaps=1)
    held.unlink()
    assert job.wait(timeout=PATIENCE_SECONDS) == 0
    for level in LEVELS:
        wait_until(lambda level=level: saves(ckptprof, level, 2))
    end(watching)

    record_property("figure", f"told before the kill: {[len(told) for told in before]} of 1 at {LEVELS}")
    for level in LEVELS:
        assert [one["bytes"] for one in saves(ckptprof, level, 1)] == [WHOLE_BYTES], level
