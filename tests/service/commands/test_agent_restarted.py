"""An agent that dies or is restarted in the midst of a save: one event, told as seen in part, and the gap is said."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from livecommand import Ckptprof, sampler_of, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

JOB = """
import io, numpy, pathlib, time
state = numpy.random.bytes(64_000_000)
stream = io.BytesIO()
numpy.save(stream, numpy.frombuffer(state, dtype='u1'))
data = stream.getvalue()
folder = pathlib.Path('saves')
folder.mkdir()
for step in range(1, 6):
    pause = 0.1 if step == 3 else 0.005
    with open(folder / f'ckpt_{step}.npy', 'wb', buffering=0) as file:
        for at in range(0, len(data), 1_000_000):
            file.write(data[at:at + 1_000_000])
            time.sleep(pause)
    time.sleep(3)
time.sleep(4)
"""
WHOLE_BYTES = 64_000_128


def saves(ckptprof: Ckptprof, step: int) -> list[dict[str, Any]]:
    """Return the saves of a step of our job that are stored; an agent sees those of other tests, too."""
    told = ckptprof.call("report", "--json", "--db", str(ckptprof.database)).stdout
    own = [one for one in json.loads(told)["checkpoints"] if str(one["path"]).startswith(str(ckptprof.work))]
    return [one for one in own if one["kind"] == "save" and one["step"] == step]


@pytest.mark.root
@pytest.mark.parametrize("level", ["trace", "poll"])
@pytest.mark.parametrize("done", ["agent-killed", "agent-restarted", "sampler-killed"])
def test_a_save_in_whose_midst_it_ends_is_one_event(ckptprof: Ckptprof, done: str, level: str) -> None:
    """Of 64 MB in 6 s; what of it was seen is told as a part, and the saves before and after it as ever."""

    def agent() -> subprocess.Popen[bytes]:
        arguments = ("--level", level, "--no-metrics", "--db", str(ckptprof.database))
        return ckptprof.start("agent", *arguments, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    watching = agent()
    wait_until(ckptprof.database.exists)
    sampler = sampler_of(watching)
    time.sleep(3)
    job = subprocess.Popen([sys.executable, "-c", JOB], cwd=ckptprof.work)
    slow = Path(ckptprof.work / "saves" / "ckpt_3.npy")
    wait_until(lambda: slow.exists() and slow.stat().st_size > WHOLE_BYTES * 0.35, 60)
    if done == "sampler-killed":
        sampler.kill()
    else:
        ended = signal.SIGKILL if done == "agent-killed" else signal.SIGTERM
        os.kill(watching.pid, ended)
        watching.wait(timeout=20)
        watching = agent()
    assert slow.stat().st_size < WHOLE_BYTES * 0.95
    assert job.wait(timeout=60) == 0
    time.sleep(3)
    watching.send_signal(signal.SIGTERM)
    watching.wait(timeout=60)

    (one,) = saves(ckptprof, 3)
    assert one["status"] == "incomplete"
    assert 0 < one["bytes"] <= WHOLE_BYTES * 1.02
    assert any("in the midst of it" in text or "restarted meanwhile" in text for text in one["blind"])
    if done != "agent-killed":
        assert any("restarted meanwhile" in text for text in one["blind"])
        assert one["end_ns"] - one["start_ns"] > 5e9
    assert [other["status"] for step in (4, 5) for other in saves(ckptprof, step)] == ["complete"] * 2
