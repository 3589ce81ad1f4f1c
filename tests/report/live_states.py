"""States for the tests of `ckptprof live`: made by hand, at fixed instants."""

from __future__ import annotations

import msgspec
from tests.report.conftest import MIB, SECOND, T0, checkpoint, diagnosed

from ckptprof.model import Kind, Mode, Point, Status
from ckptprof.report.live.state import Device, State, Underway, with_usual_bytes
from ckptprof.verdicts import Account, InterimVerdict, Limit

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
            uid="a", kind=Kind.SAVE, job="train.py", framework="torch-dcp", step=1200, ranks=4,
            bytes=700 * MIB, start_ns=NOW - 2_100_000_000, last_ns=NOW, stall_ns=2_100_000_000,
            path="/mnt/scratch/ckpt/llama-7b/run-0042/step_001200",
            so_far=_so_far("waiting for nvme0n1, which was 97 % busy"), largest_writer="rank 3, pid 41213",
        ),
        Underway(
            uid="b", kind=Kind.RESTORE, job="eval_harness.py", framework=None, step=None, ranks=None,
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
        at_ns=NOW, host="gpu-node-7", level="trace", since_ns=T0,
        underway=with_usual_bytes(going_on, newest), devices=devices, last=newest,
    )  # fmt: skip


def stopped() -> State:
    """Return a host with nothing under way, whose recorder has ended."""
    note = "no recorder is running for this database: this is its state of 2 min 05 s ago"
    return msgspec.structs.replace(busy(), level=None, since_ns=None, underway=(), devices=(), notes=(note,))


def blank() -> State:
    """Return a host of which nothing is known."""
    return State(at_ns=NOW, host=None, level=None, since_ns=None)


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


def _so_far(text: str) -> InterimVerdict:
    return InterimVerdict(
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


LATELY = {
    name: [Point(NOW - (5 - n) * SECOND, NOW - (4 - n) * SECOND, int(rate)) for n, rate in enumerate(rates)]
    for name, rates in (("nvme0n1", (0, 546e6, 1, 273e6, 500e6)), ("eth0", (0, 0)))
}
STATES = {"busy": busy, "stopped": stopped, "blank": blank, "hostile": hostile}
