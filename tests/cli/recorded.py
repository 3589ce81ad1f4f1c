"""A database of three saves for the tests that ask for it; the last has a hostile name."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from ckptprof.model import Checkpoint, Interval, Kind, Level, Moments, Pattern, PatternClass, Session, Writer
from ckptprof.store.writer import StoreWriter

SECOND = 1_000_000_000
BEGIN_NS = 1_700_000_000 * SECOND
HOSTILE = "/ckpt/\x1b[2J=cmd|' /C calc'!A0"


def recorded(path: Path) -> str:
    """Make it, and return its path."""
    with closing(StoreWriter(path)) as writer:
        writer.start_session(
            Session(
                uid="s", host="node-1", boot_id="b", kernel="6.1", version="0", level="poll",
                start_ns=BEGIN_NS - SECOND, end_ns=BEGIN_NS + 100 * SECOND, clean=True,
            )
        )  # fmt: skip
        writer.add_checkpoints([save(number) for number in range(3)])
    return str(path)


def save(number: int) -> Checkpoint:
    """Return a save of two ranks; they come ten seconds after one another and take three, the last is not durable."""
    start_ns = BEGIN_NS + number * 10 * SECOND
    return Checkpoint(
        id=number + 1, uid=f"uid-{number}", kind=Kind.SAVE, job="train", framework="torch", step=number, ranks=2,
        start_ns=start_ns, end_ns=start_ns + 3 * SECOND, durable_ns=None if number == 2 else start_ns + 5 * SECOND,
        bytes=1 << 28, files=2, path=HOSTILE if number == 2 else f"/ckpt/step-{number}",
        moments=Moments(first_data_ns=start_ns + SECOND, last_data_ns=start_ns + 2 * SECOND,
                        committed_ns=start_ns + 3 * SECOND),
        writers=tuple(
            Writer(pid=7 + rank, comm="python", bytes=1 << 27, rank=rank, start_ns=start_ns + SECOND,
                   end_ns=start_ns + 2 * SECOND)
            for rank in range(2)
        ),
        stall_ns=3 * SECOND, blocked=(Interval(start_ns, start_ns + 3 * SECOND),),
        pattern=Pattern(class_=PatternClass.SEQUENTIAL_LARGE, sequential_share_bytes=1.0), level=Level.POLL,
        limitations=(), evidence=(), confidence=0.9,
    )  # fmt: skip
