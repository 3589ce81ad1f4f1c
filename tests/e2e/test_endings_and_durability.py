"""A real save that does not end well, and when one is on stable storage: both levels watch the same job.

Live, test_bad_input.py has the writer that is killed, and Lightning in test_real_frameworks.py what is staged. The
captures ending-* hold all four programs of this file at both levels.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from recorder import Recorder, check_job

from ckptprof_collectors.files.cachestat import unwritten_bytes

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("live")]

MIB = 1 << 20

# numpy is loaded so that it looks like training; archives are laid out as torch.save's
JOB = """
import os, shutil, signal, sys, tempfile, threading, time, zipfile
import numpy
folder, chunk = sys.argv[1], os.urandom(1 << 20)
os.makedirs(folder, exist_ok=True)
def save(path, chunks, pause=0.0):
    with zipfile.ZipFile(path, "w") as archive, archive.open("archive/data/0", "w") as data:
        for _ in range(chunks):
            data.write(chunk)
            time.sleep(pause)
def raw(path, chunks):
    with open(path, "wb") as data:
        data.write(b"\\x80\\x02")
        for _ in range(chunks):
            data.write(chunk)
"""

KILLED = """
save(f"{folder}/step_1.pt", 32)
time.sleep(1.5)
threading.Timer(0.6, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
save(f"{folder}/step_2.pt", 100, 0.03)
"""

FULL = """
for step in (1, 2, 3):
    time.sleep(1)
    try:
        raw(f"{folder}/model_step_{step}.pt", 20)
    except OSError as error:
        print("full", error.errno, flush=True)
time.sleep(3)
"""

WRITTEN_BACK = """
time.sleep(1)
save(f"{folder}/step_1.pt", 24, 0.02)
time.sleep(4)
descriptor = os.open(f"{folder}/step_1.pt", os.O_RDONLY)
before = time.time_ns()
os.fsync(descriptor)
print("written", before, time.time_ns(), flush=True)
time.sleep(4)
"""

STAGED = """
for step in (1, 2):
    time.sleep(1.5)
    for name in (f"epoch=0-step={step}.ckpt", "last.ckpt"):
        staged = tempfile.mktemp(dir=sys.argv[2])
        save(staged, 24)
        with open(staged, "rb") as source, open(f"{folder}/{name}", "wb") as target:
            while os.sendfile(target.fileno(), source.fileno(), None, 8 << 20):
                pass
        os.unlink(staged)
time.sleep(3)
"""


def program(text: str, *arguments: object) -> list[str]:
    """Return the command line of a job."""
    return [sys.executable, "-c", JOB + text, *map(str, arguments)]


def saves(recorder: Recorder, folder: Path) -> list[dict[str, Any]]:
    """Return the saves below a folder, oldest first."""
    result = recorder.call("report", "--json", "--db", str(recorder.database))
    assert result.returncode in (0, 3), result.stderr.decode(errors="replace")
    found = msgspec.json.decode(result.stdout)["checkpoints"]
    found = [one for one in found if one["kind"] == "save" and Path(one["path"]).is_relative_to(folder)]
    return sorted(found, key=lambda one: one["start_ns"])


def at_both(
    recorder: Recorder, folder: Path, text: str
) -> tuple[subprocess.CompletedProcess[bytes], dict[str, list[dict[str, Any]]]]:
    """Run a job once, watched at both levels; return how it ended, and the saves that each level tells of."""
    polling, tracing = recorder.at("poll"), recorder.at("trace")
    result = polling.run_with([tracing], *program(text, folder))
    return result, {one.level: saves(one, folder) for one in (tracing, polling)}


def reason(checkpoint: dict[str, Any], name: str) -> str:
    """Return the evidence of a name, as text."""
    return "".join(one["text"] for one in checkpoint["evidence"] if one["name"] == name)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 50 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=50m", "none", place], check=False)
    if mounted.returncode:
        pytest.skip("a file system in memory cannot be mounted")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


@pytest.mark.root
@pytest.mark.bpf
def test_a_disk_that_is_full_leaves_an_incomplete_save(recorder: Recorder, small: Path) -> None:
    """Of a format whose end nobody knows: it is smaller than those before it, and there is no room."""
    result, found = at_both(recorder, small, FULL)

    check_job(result)
    assert b"full 28" in result.stdout
    for level, events in found.items():
        who = f"at the level {level}: {events}"
        assert [one["status"] for one in events] == ["complete", "complete", "incomplete"], who
        assert "no room left" in reason(events[-1], "incomplete"), who


@pytest.mark.root
@pytest.mark.bpf
def test_a_save_is_durable_when_the_kernel_has_written_it(
    recorder: Recorder, record_property: Callable[[str, object], None]
) -> None:
    """Not before the beginning of the sync that wrote it, seconds after it was complete."""
    folder = recorder.work / "job"
    if not counts_pages(recorder.work):
        pytest.skip("the kernel or the file system of the temporary folder cannot count dirty pages")

    result, found = at_both(recorder, folder, WRITTEN_BACK)

    check_job(result)
    began, ended = (int(word) for word in result.stdout.split()[1:3])
    for level, events in found.items():
        who = f"at the level {level}: {events}"
        assert [one["status"] for one in events] == ["complete"], who
        if events[0]["durable_ns"] < began:
            pytest.skip("somebody else on this machine synced it first")
        record_property("figure", f"{level}: durable {(events[0]['durable_ns'] - ended) / 1e9:.2f} s after its sync")
        assert "was still unwritten" in reason(events[0], "durable"), who


def counts_pages(folder: Path) -> bool:
    """Return whether dirty pages can be counted here."""
    probe = folder / "probe"
    probe.write_bytes(bytes(4096))
    descriptor = os.open(probe, os.O_RDONLY)
    try:
        return unwritten_bytes(descriptor) is not None
    finally:
        os.close(descriptor)
