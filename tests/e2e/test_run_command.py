"""`ckptprof run` is transparent: exit codes, signals and the streams of the command pass through it."""

from __future__ import annotations

import signal
import sys
import time

import pytest
from recorder import PATIENCE_SECONDS, Recorder, wait_until

pytestmark = pytest.mark.slow


def test_a_child_killed_by_a_signal_gives_128_and_its_number(recorder: Recorder) -> None:
    """As in a shell."""
    result = recorder.run("sh", "-c", "kill -KILL $$")

    assert result.returncode == 128 + signal.SIGKILL


def test_streams_stay_the_commands_own(recorder: Recorder) -> None:
    """What the command prints comes out unchanged, byte for byte; ckptprof itself speaks on stderr only."""
    program = "import os; os.write(1, bytes(range(256)) * 100); os.write(2, b'mine\\n')"

    result = recorder.run(sys.executable, "-c", program)

    assert bytes(range(256)) * 100 == result.stdout
    assert b"mine\n" in result.stderr


def test_options_of_the_command_are_not_eaten(recorder: Recorder) -> None:
    """Also without `--`, what follows the command's name is the command's."""
    result = recorder.call("run", "--db", str(recorder.database), "echo", "--db", "--help")

    assert result.stdout == b"--db --help\n"


def test_a_save_before_ctrl_c_is_kept(recorder: Recorder) -> None:
    """A job that is interrupted while it trains loses no checkpoint that it had saved."""
    truth = recorder.work / "truth.jsonl"
    arguments = ("--saves", "9", "--size-mb", "60", "--interval", "2", "--truth", str(truth))
    process = recorder.start(*recorder.example("train_numpy.py", *arguments))
    wait_until(truth.exists)
    time.sleep(0.5)

    recorder.press_ctrl_c()
    process.communicate(timeout=PATIENCE_SECONDS)

    assert process.returncode in (130, 1)  # Python dies of SIGINT, or exits with 1 where a library caught it
    assert [checkpoint["kind"] for checkpoint in recorder.checkpoints()] == ["save"]


def test_a_hostile_file_name_is_found_and_escaped(recorder: Recorder) -> None:
    """Escape codes, a newline, markup and a byte that is no UTF-8 are shown, not obeyed."""
    recorder.environment["COLUMNS"] = "200"  # room for the whole name
    name = b"ckpt_\x1b[31m_\n_[/red]_\xff.npy"
    program = f"import numpy, os, time; p = os.fsencode(os.getcwd()) + b'/' + bytes.fromhex('{name.hex()}')\n"
    program += "a = numpy.random.default_rng(1).standard_normal(20_000_000)\ntime.sleep(1.5)\n"
    program += "os.makedirs(os.path.dirname(p))\n"  # the slash of the markup makes it two names
    program += "with open(p, 'wb') as f: numpy.save(f, a)\ntime.sleep(1.5)\n"

    result = recorder.run(sys.executable, "-c", program)

    checkpoints = recorder.checkpoints()
    report = recorder.call("report", "--db", str(recorder.database))
    assert 0 == result.returncode == report.returncode, result.stderr
    assert len(checkpoints) == 1
    assert checkpoints[0]["path"] == f"{recorder.work}/ckpt_\x1b[31m_\n_[/red]_\\xff.npy"
    for output in (report.stdout, result.stderr):
        assert b"[/red]" in output
        assert not [byte for byte in output if byte < 32 and byte != 10]
        output.decode("utf-8")
