"""What a loop device was asked for while a real save ran under ckptprof, held against the kernel's own account."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.e2e.recorder import Recorder
from tests.kernel.filesystems import call

pytestmark = [pytest.mark.root, pytest.mark.bpf, pytest.mark.slow]

MIB = 1 << 20
_WRITES, _WRITTEN_SECTORS = 4, 6  # fields after a device's name (Documentation/admin-guide/iostats.rst)
SAVE = """
import os, pathlib, sys, time
import numpy
path, folder = sys.argv[1:]
stat = pathlib.Path("/sys/dev/block", f"{os.major(os.stat(folder).st_dev)}:{os.minor(os.stat(folder).st_dev)}", "stat")
weights = numpy.random.default_rng(1).random(8 << 20)
time.sleep(1.5)  # the tracer looks at devices once a second
print(stat.read_text())
with open(path, "wb") as stream:
    numpy.save(stream, weights)
    stream.flush()
    os.fsync(stream.fileno())
print(stat.read_text())
time.sleep(3)
"""


def test_a_save_tells_what_its_device_was_asked_for(on: Callable[[str], Path], tmp_path: Path) -> None:
    """Requests, their size and latency reach `show` through the store, and agree with the device's own statistics."""
    folder = on("ext4")
    call("sync", "-f", folder)  # what other tests left there
    recorder = Recorder(tmp_path, level="trace")
    done = recorder.run(sys.executable, "-c", SAVE, str(folder / "step_100.npy"), str(folder))
    assert done.returncode == 0, done.stderr.decode()
    before, after = ([int(field) for field in line.split()] for line in done.stdout.decode().splitlines() if line)
    requests, sectors = (after[i] - before[i] for i in (_WRITES, _WRITTEN_SECTORS))

    listed = recorder.call("list", "--json", "--db", str(recorder.database))
    saves = [one for one in json.loads(listed.stdout)["checkpoints"] if one["kind"] == "save"]
    assert [Path(one["path"]).name for one in saves] == ["step_100.npy"]
    shown = recorder.call("show", str(saves[0]["id"]), "--json", "--db", str(recorder.database))
    (device,) = (
        share
        for share in json.loads(shown.stdout)["checkpoint"]["devices"]
        if share["device"] == _device_of(folder) and share["kind"] == "block"
    )

    assert requests > 0
    assert device["requests"] == pytest.approx(requests, rel=0.25, abs=16)  # beside the save: the journal, flushes
    assert device["mean_request_bytes"] == pytest.approx(sectors * 512 / requests, rel=0.25)
    assert device["requests"] * device["mean_request_bytes"] == pytest.approx(64 * MIB, rel=0.1)
    assert 0 < device["latency_p50_seconds"] <= device["latency_p99_seconds"]
    assert 0 <= device["sequential_share_bytes"] <= 1
    assert device["max_in_flight"] >= 0
    text = recorder.call("show", str(saves[0]["id"]), "--all", "--db", str(recorder.database)).stdout.decode()
    assert "REQUESTS" in text


def _device_of(folder: Path) -> str:
    device = folder.stat().st_dev
    return Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").readlink().name
