"""What is saved into a FUSE mount over a network, or restored from it, is told whole, with who held it up."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from recorder import JobBrokeError
from tests.machine import need_room

sys.path.insert(0, str(Path(__file__).resolve().parent / "faults"))

from fault_bench import Told, run_work
from fault_cases import work
from fault_grounds import IMAGE_MIB, s3, sshfs

MB = 1 << 20
SIZE_MB = 24
RESTORED_MB = 40
QUICK_MB = 4  # is there within the half second that is too short to matter
QUICK_SECONDS = 0.5
SAVES = 2
RATE = 20 * MB  # that the path and the slow servers take, in a second
EDGE_SECONDS = {"trace": 0.25, "poll": 0.5}
CLIENTS: dict[str, Any] = {
    "sshfs": partial(sshfs, encrypted=True),
    "s3fs": partial(s3, by="s3fs"),
    "rclone": partial(s3, by="rclone"),
    "rclone-cached": partial(s3, by="rclone-cached"),
}
MEGABITS = 8 * RATE // 1_000_000
HELD_UP: dict[str, tuple[dict[str, Any], str | None]] = {
    "path": ({"megabits": MEGABITS, "routed": True}, "network"),
    "server": ({"server_bytes": RATE}, "server"),
    "answers": ({"late_seconds": 0.8}, "server"),
    "nothing": ({}, None),
}
SHAPED: dict[str, Any] = {"megabits": MEGABITS}
# Each client and what holds it up once; CKPTPROF_FAULTS=all is every pair that there is
EVERYDAY = [
    ("sshfs", "path"), ("rclone", "path"), ("rclone", "server"), ("s3fs", "answers"), ("sshfs", "nothing"),
]  # fmt: skip
ALL = [
    (client, by)
    for client in ("sshfs", "s3fs", "rclone")
    for by in HELD_UP
    if (client, by) != ("sshfs", "answers")  # SFTP answers each piece
]
IS_ALL = os.environ.get("CKPTPROF_FAULTS") == "all"

pytestmark = [
    pytest.mark.root,
    pytest.mark.fuse,
    pytest.mark.slow,
    pytest.mark.bpf,
    pytest.mark.torch,
    pytest.mark.programs("sshfs", "sshd", "ssh-keygen", "s3fs", "rclone", "socat", "curl", "tc", "ip"),
    pytest.mark.xdist_group("live"),
]


def told_of(event: dict[str, Any]) -> dict[str, Any]:
    """Return what tells why an event is told so, for a failure."""
    verdict, measures = event["verdict"], event["measures"]
    span = {"start_ns": event["start_ns"], "seconds": (event["end_ns"] - event["start_ns"]) / 1e9}
    kept = {"limit": verdict["limit"], "evidence": verdict["evidence"], "mount": measures["mount"]["daemon_busy"]}
    return {**span, "bytes": event["bytes"], **kept, "connections": measures["connections"]}


def check(told: dict[str, Told], client: str, number: int, limit: str | None) -> str:
    """Hold what each level told to what the job logged, and return what it was; raises JobBrokeError.

    Bytes, edges with what close(2) waited for, the client of the mount and who serves it, and what held it up.
    """
    figures = []
    for level, one in told.items():
        if len(one.logged) != number or (limit is None and max(one.truth_seconds) > QUICK_SECONDS):
            raise JobBrokeError(f"it took {one.truth_seconds} s, which is not what was to be seen")
        said = f"{level}: {json.dumps([told_of(event) for event in one.events], indent=1)}"
        assert len(one.events) == number, said
        figures.append(f"{level} {', '.join(one.limits)} in {one.seconds:.2f} s")
        for event, logged in zip(sorted(one.events, key=lambda event: event["start_ns"]), one.logged, strict=True):
            mount = event["measures"]["mount"]
            program = client.partition("-")[0]
            assert (mount["remote"], mount["client"], mount["daemon"]) == (True, program, program), said
            assert 0.98 <= event["bytes"] / logged["bytes"] <= 1.02, said
            edges = [(event[edge] - logged[edge]) / 1e9 for edge in ("start_ns", "end_ns")]
            assert max(map(abs, edges)) < EDGE_SECONDS[level], f"{level}: {edges}\n{said}"
        if limit is None:
            assert not {"network", "server"} & set(one.limits), said
        else:
            assert one.limits == [limit] * number, said
    return "; ".join(figures)


@pytest.mark.parametrize(("client", "by"), ALL if IS_ALL else EVERYDAY)
def test_a_save_over_fuse_is_told_whole_with_who_held_it_up(
    client: str, by: str, record_property: Callable[[str, object], None]
) -> None:
    """Path, server or neither; sshfs speaks to an SSH server, s3fs and rclone to one of objects."""
    if client == "sshfs":
        need_room("/dev/shm", IMAGE_MIB << 20)
    how, limit = HELD_UP[by]
    size_mb = QUICK_MB if limit is None else SIZE_MB

    told = run_work(work(partial(CLIENTS[client], **how), "--way", "torch-save"), size_mb, saves=SAVES)

    record_property("figure", f"{client}, {by}: {check(told, client, SAVES, limit)}")


@pytest.mark.parametrize("client", ["sshfs", "rclone", "rclone-cached"])
def test_a_restore_over_fuse_is_told_whole_with_who_held_it_up(
    client: str, record_property: Callable[[str, object], None]
) -> None:
    """What rclone keeps in files of this host comes from afar the first time."""
    if client == "sshfs":
        need_room("/dev/shm", IMAGE_MIB << 20)
    saved = ("--way", "torch-save", "--saves", "1")

    told = run_work(work(partial(CLIENTS[client], **SHAPED), "--restore", "read", before=saved), RESTORED_MB, "restore")

    record_property("figure", f"{client}, restore: {check(told, client, 1, 'network')}")
