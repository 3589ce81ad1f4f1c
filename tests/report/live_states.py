"""States for the tests of `ckptprof live`: made by hand, at fixed instants."""

from __future__ import annotations

import msgspec
from tests.report.conftest import MIB, SECOND, T0, checkpoint, diagnosed

from ckptprof.model import Kind, Mode, Status
from ckptprof.report.live.state import Device, Recorder, State, Underway, with_usual
from ckptprof.verdicts import Account, Limit, SoFar

NOW = T0 + 700 * SECOND + 400_000_000
HOSTILE = "\x1b[2J\x1b]0;x\x07[/red]\u202e検査"


def busy() -> State:
    """Return a host with a save and a restore under way, and more checkpoints behind it than a small screen holds."""
    last = [
        diagnosed(n, n * 60, limit=Limit.NONE, end_ns=T0 + n * 60 * SECOND + SECOND, mode=Mode.ASYNC, stall_ns=10**7)
        for n in range(1, 10)
    ]
    last += [diagnosed(10, 600, mode=Mode.SYNC, stall_ns=39_200_000_000), checkpoint(11, 660, status=Status.INCOMPLETE)]
    going_on = (
        Underway(
            uid="a", kind=Kind.SAVE, job="train.py", framework="torch-dcp", step=1200, ranks=4, ranks_done=3,
            bytes=700 * MIB, start_ns=NOW - 2_100_000_000, last_ns=NOW, stall_ns=2_100_000_000,
            path="/mnt/scratch/ckpt/llama-7b/run-0042/step_001200",
            so_far=_so_far("waiting for nvme0n1, which was 97 % busy"),
        ),
        Underway(
            uid="b", kind=Kind.RESTORE, job="eval_harness.py", framework=None, step=None, ranks=None, ranks_done=None,
            bytes=52_000_000, start_ns=NOW - 400_000_000, last_ns=NOW, path=None,
        ),
    )  # fmt: skip
    newest = tuple(reversed(last))
    devices = (
        _device("nic", "eth0", 8_000.0, 5_000.0, None),
        _device("disk", "nvme0n1", 0.0, 546e6, 0.14),
        _device("disk", "sda", 0.0, 0.0, 0.0),
        _device("rdma", "mlx5_0/1", None, None, None),
    )
    return State(
        at_ns=NOW, host="gpu-node-7", level="trace", since_ns=T0, source="agent",
        underway=with_usual(going_on, newest), devices=devices, last=newest,
        recorder=Recorder(
            cpu_share=0.0042, resident_bytes=52 * MIB, late_frames=0, dropped_frames=0, store_bytes=228_000,
            store_queue=0,
        ),
    )  # fmt: skip


def followed() -> State:
    """Return a host that is followed by its database, with nothing under way."""
    state = busy()
    old = [msgspec.structs.replace(one, at_ns=NOW - 41 * SECOND) for one in state.devices]
    return msgspec.structs.replace(
        state, source="database", underway=(), devices=tuple(old), recorder=None,
        notes=("no agent answers: this follows the database, devices are up to a minute old",),
    )  # fmt: skip


def blank() -> State:
    """Return a host of which nothing is known."""
    return State(at_ns=NOW, host=None, level=None, since_ns=None, source="database")


def hostile() -> State:
    """Return a host whose names hold escape codes, markup and wide characters."""
    state = busy()
    names = {"job": HOSTILE, "path": f"/{HOSTILE}/{HOSTILE}"}
    return msgspec.structs.replace(
        state, host=HOSTILE, notes=(HOSTILE,),
        underway=tuple(
            msgspec.structs.replace(one, framework=HOSTILE, so_far=_so_far(HOSTILE), **names) for one in state.underway
        ),
        devices=tuple(msgspec.structs.replace(one, name=HOSTILE) for one in state.devices),
        last=tuple(msgspec.structs.replace(one, **names) for one in state.last),
    )  # fmt: skip


def _so_far(text: str) -> SoFar:
    return SoFar(
        limit=Limit.DEVICE, candidates=(Limit.SERIALIZE,), confidence=0.9, seconds=2.1, accounts=(
            Account(limit=Limit.DEVICE, seconds=1.4, text=text),
            Account(limit=Limit.SERIALIZE, seconds=0.5, text="on CPU in its own code"),
            Account(limit=None, seconds=0.2, text="nothing explains"),
        ),
    )  # fmt: skip


def _device(kind: str, name: str, read: float | None, written: float | None, busy_share: float | None) -> Device:
    return Device(
        name=name, kind=kind, read_bytes_per_second=read, written_bytes_per_second=written, busy_share=busy_share,
        at_ns=NOW,
    )  # fmt: skip


LATELY = {"nvme0n1": [0.0, 546e6, 1.0, 273e6, 500e6], "eth0": [0.0, 0.0]}
STATES = {"busy": busy, "followed": followed, "blank": blank, "hostile": hostile}
