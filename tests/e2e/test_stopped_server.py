"""A FUSE server that stops holds up the job that saves there, and neither who watches nor who asks."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from recorder import Recorder, check_job, wait_until

SAVER = Path(__file__).with_name("faults") / "saver.py"
SFTP_SERVER = "/usr/lib/openssh/sftp-server"


@contextlib.contextmanager
def served(behind: Path, place: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Mount a folder by sshfs on another one, and give its server."""
    speaks = behind.with_name("speaks")
    speaks.write_text(f"#!/bin/sh\nexec {SFTP_SERVER}\n")
    speaks.chmod(0o755)
    with subprocess.Popen(["sshfs", "-f", f"host:{behind}", place, "-o", f"ssh_command={speaks}"]) as server:
        try:
            wait_until(place.is_mount)
            yield server
        finally:
            subprocess.run(["umount", "--lazy", place], check=False)
            server.terminate()


@contextlib.contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a job, and end it."""
    with subprocess.Popen(command) as job:
        try:
            yield job
        finally:
            job.kill()


@contextlib.contextmanager
def stopped(server: subprocess.Popen[bytes]) -> Iterator[None]:
    """Stop a process, and let it go on."""
    server.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.send_signal(signal.SIGCONT)


@pytest.mark.root
@pytest.mark.fuse
@pytest.mark.slow
@pytest.mark.xdist_group("live")
@pytest.mark.programs("sshfs", SFTP_SERVER)
@pytest.mark.parametrize("level", ["poll", pytest.param("trace", marks=pytest.mark.bpf)])
def test_a_server_that_stops_holds_up_nobody_but_its_job(recorder: Recorder, level: str) -> None:
    """Meanwhile saves to other places are told and each command comes back; doctor says who leaves how many waiting."""
    behind, place, beside = (recorder.work / name for name in ("behind", "place", "beside"))
    for folder in (behind, place, beside):
        folder.mkdir()
    watching = recorder.at(level)

    def told(folder: Path) -> list[str]:
        found = [one for one in watching.checkpoints() if one["path"] is not None]
        return [str(one["id"]) for one in found if Path(one["path"]).is_relative_to(folder)]

    with (
        served(behind, place) as server,
        watching.agent(),
        running(sys.executable, str(SAVER), str(place), "20", "1000", "raw") as held,
    ):
        known = wait_until(lambda: told(place))
        with stopped(server):
            check_job(watching.alone(sys.executable, str(SAVER), str(beside), "28", "3", "raw"))
            wait_until(lambda: len(told(beside)) == 3, watching.checkpoints)
            doctor = watching.call("doctor", "--json")
            shown = watching.call("show", known[0], "--db", str(watching.database))
            is_held = held.poll() is None
            before = len(told(place))
        wait_until(lambda: len(told(place)) > before + 1, watching.checkpoints)

    lines = {one["id"]: one["text"] for one in json.loads(doctor.stdout)["checks"]}
    said = lines[f"mount:{place}"]
    assert is_held
    assert f"served by sshfs, process {server.pid}" in said, said
    if "the number of pending requests" not in said.partition("not observed: ")[2]:  # fusectl is mounted
        assert re.search(r"the number of pending requests \([1-9][0-9]* now\)", said), said
    assert shown.returncode == 0, shown.stderr
