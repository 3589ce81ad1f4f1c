"""What looks a little like a checkpoint and is none: logs, copies, bystanders."""

from __future__ import annotations

import shlex
import sys

import pytest
from recorder import Recorder

from truth import compare, read_log, table

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("hosts"), pytest.mark.alone, pytest.mark.timeout(240)]

MAKE_BIG_FILE = "import os, sys; f = open(sys.argv[1], 'wb'); [f.write(os.urandom(1 << 20)) for _ in range(300)]"


def job_beside_copies(recorder: Recorder, *, copy_of_checkpoint: bool) -> list[str]:
    """Return a shell job: training with three saves, while `cp` copies a file of 300 MB again and again."""
    big, copy = recorder.work / "dataset.bin", recorder.work / "copy.bin"
    if copy_of_checkpoint:  # a known name does not make a save of a copy
        big, copy = recorder.work / "ckpt_00000001.npz", recorder.work / "backup" / "ckpt_00000001.npz"
        copy.parent.mkdir()
    with big.open("wb") as stream:
        for _ in range(300):
            stream.write(b"PK\x03\x04" + bytes((1 << 20) - 4))
    train = recorder.example("train_numpy.py", "--saves", "3", "--size-mb", "200", "--interval", "2")
    train += ["--truth", str(recorder.work / "truth.jsonl")]
    copies = f"for i in 1 2 3; do cp {shlex.quote(str(big))} {shlex.quote(str(copy))}; sleep 1; done"
    return ["sh", "-c", f"({copies}) & {shlex.join(train)}; code=$?; wait; exit $code"]


def test_a_job_that_only_logs_yields_nothing(recorder: Recorder) -> None:
    """Several MB/s of log lines are no checkpoint."""
    result = recorder.run(*recorder.example("log_only.py", "--seconds", "10", "--mb-per-second", "8"))

    assert result.returncode == 0, result.stderr
    assert recorder.checkpoints() == []


@pytest.mark.parametrize("copy_of_checkpoint", [False, True], ids=["dataset", "checkpoint"])
def test_copies_beside_a_job_are_not_its_saves(recorder: Recorder, copy_of_checkpoint: bool) -> None:  # noqa: FBT001 - a case
    """The saves of the job are found, the copies that a sibling makes at the same time are not."""
    result = recorder.run(*job_beside_copies(recorder, copy_of_checkpoint=copy_of_checkpoint))

    comparison = compare(read_log(recorder.work / "truth.jsonl"), recorder.checkpoints())
    assert result.returncode == 0, result.stderr
    assert tuple(len(comparison.of(verdict)) for verdict in ("found", "missed", "invented")) == (3, 0, 0), table(
        comparison
    )
    assert comparison.worst_bytes_error_percent <= 2


@pytest.mark.root
def test_the_agent_takes_neither_copies_nor_logs_for_saves(recorder: Recorder) -> None:
    """Host-wide, with nobody pointing at the job, the same holds for all three at once."""
    with recorder.agent():
        logs = ["sh", "-c", shlex.join(recorder.example("log_only.py", "--seconds", "6")) + ' & exec "$@"', "sh"]
        result = recorder.alone(*logs, *job_beside_copies(recorder, copy_of_checkpoint=False))

    comparison = compare(read_log(recorder.work / "truth.jsonl"), recorder.checkpoints())
    assert result.returncode == 0, result.stderr
    assert tuple(len(comparison.of(verdict)) for verdict in ("found", "missed", "invented")) == (3, 0, 0), table(
        comparison
    )


def test_a_job_that_reads_its_data_does_not_restore(recorder: Recorder) -> None:
    """A job that streams a data set of 300 MB in pieces while it prints yields nothing."""
    data = recorder.work / "tokens.bin"
    read = "import sys, time\nf = open(sys.argv[1], 'rb')\nwhile f.read(1 << 20):\n    time.sleep(0.02)\n"
    make = recorder.alone(sys.executable, "-c", MAKE_BIG_FILE, str(data))

    result = recorder.run(sys.executable, "-c", read, str(data))

    assert 0 == make.returncode == result.returncode
    assert recorder.checkpoints() == []
