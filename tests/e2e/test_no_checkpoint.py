"""What looks a little like a checkpoint and is none: logs and copies beside a job.

The captures log-only, beside-copies-* and reads-its-data hold each by itself, at both levels.
"""

from __future__ import annotations

import shlex

import pytest
from recorder import Recorder, check_job

from truth import compare, read_log, table

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("live")]


def job_beside_copies(recorder: Recorder) -> list[str]:
    """Return a shell job: training with three saves, while `cp` copies a file of 300 MB again and again."""
    # A known name does not make a save of a copy
    big, copy = recorder.work / "ckpt_00000001.npz", recorder.work / "backup" / "ckpt_00000001.npz"
    copy.parent.mkdir()
    with big.open("wb") as stream:
        for _ in range(300):
            stream.write(b"PK\x03\x04" + bytes((1 << 20) - 4))
    train = recorder.example("train_numpy.py", "--saves", "3", "--size-mb", "200", "--interval", "2")
    train += ["--truth", str(recorder.work / "truth.jsonl")]
    copies = f"for i in 1 2 3; do cp {shlex.quote(str(big))} {shlex.quote(str(copy))}; sleep 1; done"
    return ["sh", "-c", f"({copies}) & {shlex.join(train)}; code=$?; wait; exit $code"]


@pytest.mark.root
def test_the_agent_takes_neither_copies_nor_logs_for_saves(recorder: Recorder) -> None:
    """Host-wide, with nobody pointing at the job: its saves are found, and nothing of what goes on at the same time."""
    logs = ["sh", "-c", shlex.join(recorder.example("log_only.py", "--seconds", "6")) + ' & exec "$@"', "sh"]
    job = job_beside_copies(recorder)
    with recorder.agent():
        result = recorder.alone(*logs, *job)

    check_job(result)
    comparison = compare(read_log(recorder.work / "truth.jsonl"), recorder.checkpoints())
    assert tuple(len(comparison.of(verdict)) for verdict in ("found", "missed", "invented")) == (3, 0, 0), table(
        comparison
    )
