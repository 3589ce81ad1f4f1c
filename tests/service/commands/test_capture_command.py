"""`capture -- CMD`: as transparent as `run`, and its recording holds what `run` would have reported."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from livecommand import CKPTPROF, SAVE, Ckptprof, wait_until
from tests.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.slow

BEGINS = rb"ckptprof: recording (.*) at (poll|trace) level to (\S+), (.*)\n"


@pytest.mark.xdist_group("live")
def test_a_command_and_its_descendants_are_recorded_and_nothing_else(ckptprof: Ckptprof) -> None:
    """A child's save is in it, that of a process beside it is not; the exit code is the command's."""
    beside = ckptprof.work / "beside"
    beside.mkdir()
    other = subprocess.Popen([sys.executable, "-c", SAVE, "4"], cwd=beside)
    job = f"{shlex.join([sys.executable, '-c', f'{SAVE}time.sleep(1)', '2'])}; exit 9"

    result = ckptprof.call("capture", "x.gz", "--", "sh", "-c", job)
    other.wait(timeout=PATIENCE_SECONDS)
    replayed = ckptprof.call("replay", "x.gz", "--json")

    assert result.returncode == 9, result.stderr
    assert (begun := re.match(BEGINS, result.stderr))
    assert begun[1].startswith(b"sh -c ")
    assert begun[1].endswith(b"and its descendants")
    assert (begun[3], begun[4]) == (b"x.gz", b"until it ends")
    assert re.search(rb"ckptprof: recorded \d+ s, [\d,]+ frames, [\d.]+ kB in x.gz\n", result.stderr)
    assert result.stderr.endswith(b"ckptprof: `ckptprof replay x.gz` reports its checkpoints\n")
    assert [one["path"] for one in json.loads(replayed.stdout)["checkpoints"]] == [
        str(ckptprof.work / f"ckpt_{number}.npy") for number in range(2)
    ]


def test_streams_and_quiet(ckptprof: Ckptprof) -> None:
    """What the command prints is its own; --quiet adds nothing to it."""
    result = ckptprof.call("capture", "-q", "x.gz", "--", "sh", "-c", "echo out; echo err >&2")

    assert (result.returncode, result.stdout, result.stderr) == (0, b"out\n", b"err\n")
    assert ckptprof.call("replay", "x.gz").returncode == 3


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 5), ("SIGINT", 6)])
def test_signals_are_passed_on(ckptprof: Ckptprof, name: str, code: int) -> None:
    """The command decides what comes of them; the recording is whole."""
    job = "trap 'exit 5' TERM; trap 'exit 6' INT; : > ready; while :; do sleep 0.1; done"
    process = ckptprof.start("capture", "x.gz", "--", "sh", "-c", job)
    wait_until((ckptprof.work / "ready").exists)

    process.send_signal(getattr(signal, name))
    process.communicate(timeout=PATIENCE_SECONDS)

    assert process.returncode == code
    assert ckptprof.call("replay", "x.gz").returncode == 3


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [(("no-such-command-here",), 127, b"no-such-command-here: no such command"), (("/",), 126, b"cannot be executed")],
)
def test_what_cannot_be_started_leaves_no_file(
    ckptprof: Ckptprof, command: tuple[str, ...], code: int, said: bytes
) -> None:
    """Exit codes as a shell's; --force costs nothing of the old file but what a recording begins with."""
    result = ckptprof.call("capture", "x.gz", "--", *command)

    assert result.returncode == code
    assert said in result.stderr


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_a_link_is_not_followed(ckptprof: Ckptprof, force: tuple[str, ...]) -> None:
    """Whoever may write to the folder could have put it there, to any file of who records."""
    (ckptprof.work / "precious").write_text("kept")
    (ckptprof.work / "x.gz").symlink_to("precious")
    result = ckptprof.call("capture", *force, "x.gz", "--", "true")

    assert result.returncode == 1
    assert (b"x.gz: is a link" if force else b"already exists") in result.stderr
    assert (ckptprof.work / "precious").read_text() == "kept"


def test_a_full_disk_costs_the_recording_and_not_the_command(ckptprof: Ckptprof) -> None:
    """It goes on unwatched, which is told, and its exit code is its own."""
    job = "while [ ! -e told ]; do sleep 0.1; done; exit 4"
    process = ckptprof.start("capture", "--force", "/dev/full", "--", "sh", "-c", job)
    assert process.stderr is not None
    while b"no longer monitored: /dev/full: No space left" not in (line := process.stderr.readline()):
        assert line, "it has ended"
    (ckptprof.work / "told").touch()
    _, err = process.communicate(timeout=PATIENCE_SECONDS)

    assert process.returncode == 4
    assert b"nothing was recorded" in err


def test_the_time_may_be_over_before_the_command(ckptprof: Ckptprof) -> None:
    """It goes on to its end, and is recorded no longer."""
    result = ckptprof.call("capture", "x.gz", "--seconds", "1", "--", "sh", "-c", "sleep 3; echo > after; exit 3")

    assert result.returncode == 3
    assert (ckptprof.work / "after").exists()
    assert re.search(rb"to x.gz, for 1 s\n", result.stderr)
    watched = json.loads(ckptprof.call("replay", "x.gz", "--json").stdout)["watched"]
    assert watched["end_ns"] < (ckptprof.work / "after").stat().st_mtime_ns


def test_a_host_is_recorded_until_ctrl_c(ckptprof: Ckptprof) -> None:
    """Where, at which level and how it ends is told when it begins."""
    process = ckptprof.start("capture", "x.gz")
    assert process.stderr is not None
    line = process.stderr.readline()

    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_SECONDS)

    assert process.returncode == 0
    assert (begun := re.match(BEGINS, line))
    assert begun[1] == b"this host"
    assert (begun[3], begun[4]) == (b"x.gz", b"until Ctrl-C")
    assert b"recorded" in err
    assert b"\r" not in line + err  # no progress in a pipe


@pytest.mark.parametrize("arguments", [("capture", "x.gz", "--seconds", "2"), ("replay", "recorded.gz")])
def test_a_person_sees_progress(ckptprof: Ckptprof, arguments: tuple[str, ...]) -> None:
    """In one line of the terminal, which is gone in the end."""
    streams = Path(__file__).resolve().parents[2] / "fixtures" / "streams"
    (ckptprof.work / "recorded.gz").write_bytes((streams / "torch-save.ckptrec.gz").read_bytes())
    keyboard, terminal = pty.openpty()
    process = subprocess.Popen(
        [*CKPTPROF, *arguments], env=ckptprof.environment, cwd=ckptprof.work, stdout=subprocess.DEVNULL, stderr=terminal
    )
    os.close(terminal)
    said = b""
    with contextlib.suppress(OSError):  # nobody has the terminal any more
        while True:
            said += os.read(keyboard, 4096)
    os.close(keyboard)

    assert process.wait() == 0
    assert re.search(rb"\r\x1b\[K(recorded \d+ s, .* \(Ctrl-C ends it\)|replaying recorded\.gz: \d+%)", said)
    assert b"%" not in said.rpartition(b"\x1b[K")[2]
