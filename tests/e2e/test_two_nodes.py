"""Two nodes that record by themselves: their databases tell the saves of the job on both, and which was slow."""

from __future__ import annotations

import json
import shlex
import socket
import subprocess
import sys

import pytest
from recorder import ROOT, Recorder, check_job

pytestmark = [pytest.mark.slow, pytest.mark.namespaces]
JOB = ROOT / "tests" / "e2e" / "jobs" / "ranks.py"
SAVES = 4
NODES = ["node-a", "node-b"]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _start(recorder: Recorder, rank: int, port: int, rest: float) -> subprocess.Popen[bytes]:
    """Start a rank under a recorder of its own, on a node of its own name."""
    node = NODES[rank]
    database = recorder.work / "nodes" / f"{node}.db"
    job = [sys.executable, str(JOB), "--dir", str(recorder.work / "ckpt"), "--saves", str(SAVES), "--rest", str(rest)]
    command = recorder.ckptprof("run", "--db", str(database), "--level", "poll", "--", *job)
    environment = {
        **recorder.environment, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": "node-a", "MASTER_PORT": str(port),
    }  # fmt: skip
    return subprocess.Popen(
        ["unshare", "--uts", "sh", "-c", f"hostname {node} && exec {shlex.join(command)}"],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.mark.parametrize("slow", ["node-b", None])
def test_the_saves_of_two_nodes_are_told_with_the_slow_one(recorder: Recorder, slow: str | None) -> None:
    """Their clocks are this host's, of which nobody needs to know: the starts of the saves tell.

    The first node ends last in each: it commits. That is not whom they waited for.
    """
    (recorder.work / "nodes").mkdir()
    port = _free_port()

    started = [_start(recorder, rank, port, 0.4 * (NODES[rank] == slow)) for rank in range(2)]
    for process in started:
        out, err = process.communicate()
        check_job(subprocess.CompletedProcess(process.args, process.returncode, out, err))

    told = json.loads(recorder.call("report", "--db", str(recorder.work / "nodes"), "--json").stdout)
    saves = [one for one in told["checkpoints"] if one["whole"]["kind"] == "save"]
    assert [one["whole"]["step"] for one in saves] == [100 * n for n in range(1, SAVES + 1)]
    assert [[part["host"] for part in one["nodes"]] for one in saves] == [NODES] * SAVES
    assert {(one["place"], one["ranks_observed"], one["ranks_expected"]) for one in saves} == {("shared", 2, 2)}
    assert [one["host"] for one in told["slow"]] == ([] if slow is None else [slow])
    page = recorder.call("show", "1", "--db", str(recorder.work / "nodes")).stdout.decode()
    assert "step_100 (shared)" in page
