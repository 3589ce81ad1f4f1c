"""What is saved into a FUSE mount over a network, or restored from it, is reported whole, with who held it up.

The captures fuse-*, fault-network-*, fault-server-fuse and control-network-s3 hold other pairs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from recorder import JobBrokeError
from tests.machine import need_room

sys.path.insert(0, str(Path(__file__).resolve().parent / "faults"))

from fault_bench import Told, Work, run_work
from fault_grounds import IMAGE_MIB, s3, sshfs

MB = 1 << 20
SIZE_MB = 24
RESTORED_MB = 40
SAVES = 2
RATE = 20 * MB  # that the path and the slow servers take, in a second
MEGABITS = 8 * RATE // 1_000_000
EDGE_SECONDS = {"trace": 0.25, "poll": 0.5}
SAVED: dict[str, tuple[Any, str]] = {  # the ground, and the limit that it is
    "sshfs": (partial(sshfs, MEGABITS), "network"),
    "rclone": (partial(s3, by="rclone", server_bytes=RATE), "server"),
    "s3fs": (partial(s3, by="s3fs", late_seconds=0.8), "server"),
}

pytestmark = [
    pytest.mark.root,
    pytest.mark.fuse,
    pytest.mark.slow,
    pytest.mark.bpf,
    pytest.mark.torch,
    pytest.mark.programs("sshfs", "sshd", "ssh-keygen", "s3fs", "rclone", "curl", "tc", "ip"),
    pytest.mark.xdist_group("live"),
]


def told_of(event: dict[str, Any]) -> dict[str, Any]:
    """Return what explains the report of an event, for a failure."""
    verdict, measures = event["verdict"], event["measures"]
    span = {"start_ns": event["start_ns"], "seconds": (event["end_ns"] - event["start_ns"]) / 1e9}
    kept = {"limit": verdict["limit"], "evidence": verdict["evidence"], "mount": measures["mount"]["daemon_busy"]}
    return {**span, "bytes": event["bytes"], **kept, "connections": measures["connections"]}


def check(told: dict[str, Told], client: str, number: int, limit: str) -> str:
    """Compare the report of each level with the job's log, and return its limits; raises JobBrokeError.

    Bytes, edges with what close(2) waited for, the client of the mount and who serves it, and what held it up.
    """
    figures = []
    for level, one in told.items():
        if len(one.logged) != number:
            raise JobBrokeError(f"it has logged {len(one.logged)} events")
        said = f"{level}: {json.dumps([told_of(event) for event in one.events], indent=1)}"
        assert len(one.events) == number, said
        figures.append(f"{level} {', '.join(one.limits)} in {one.seconds:.2f} s")
        for event, logged in zip(sorted(one.events, key=lambda event: event["start_ns"]), one.logged, strict=True):
            mount = event["measures"]["mount"]
            assert (mount["remote"], mount["client"], mount["daemon"]) == (True, client, client), said
            assert 0.98 <= event["bytes"] / logged["bytes"] <= 1.02, said
            edges = [(event[edge] - logged[edge]) / 1e9 for edge in ("start_ns", "end_ns")]
            assert max(map(abs, edges)) < EDGE_SECONDS[level], f"{level}: {edges}\n{said}"
        assert one.limits == [limit] * number, said
    return "; ".join(figures)


@pytest.mark.parametrize("client", SAVED)
def test_a_save_over_fuse_is_told_whole_with_who_held_it_up(
    client: str, record_property: Callable[[str, object], None]
) -> None:
    """By the path or the server; sshfs speaks to an SSH server, s3fs and rclone to one of objects."""
    if client == "sshfs":
        need_room("/dev/shm", IMAGE_MIB << 20)
    ground, limit = SAVED[client]

    told = run_work(Work(ground, ("--way", "torch-save")), SIZE_MB, saves=SAVES)

    record_property("figure", f"{client}: {check(told, client, SAVES, limit)}")


def test_a_restore_over_fuse_is_told_whole_with_who_held_it_up(record_property: Callable[[str, object], None]) -> None:
    """What rclone keeps in files of this host comes from afar the first time."""
    work = Work(partial(s3, MEGABITS, by="rclone-cached"), ("--restore",), ("--way", "torch-save", "--saves", "1"))

    told = run_work(work, RESTORED_MB, "restore")

    record_property("figure", f"rclone, restore: {check(told, 'rclone', 1, 'network')}")
