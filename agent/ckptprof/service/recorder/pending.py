"""What is not reported yet, as bytes in the database, so that it outlives a `kill -9` of the recorder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from ckptprof.detect.events.deferred import Pending
from ckptprof.errors import StoreError
from ckptprof.model import Checkpoint
from ckptprof.store.reader import StoreReader

QUIET_NS = 10_000_000_000  # after its last I/O: what waits is stored about once a second, later where that costs much
encoded = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Pending).decode


def left_pending(db: str | Path) -> list[Pending]:
    """Return what the agent before had not told, in the order in which it ended; nothing if it cannot be read."""
    try:
        with StoreReader(db) as reader:
            found = [_decode(data) for data in reader.pending().values()]
    except (StoreError, msgspec.MsgspecError):
        return []
    return sorted(found, key=lambda one: one.event.end_ns)


def going_on(kept: Iterable[bytes]) -> list[Checkpoint]:
    """Return the checkpoints that go on, of what is not reported yet, the oldest first: those of which that is sure.

    What another version of the agent has kept is left out.
    """
    found = [one.checkpoint for one in _decoded(kept) if one.if_alone is None]
    return sorted(found, key=lambda one: one.start_ns)


def is_writing(kept: Iterable[bytes], now_ns: int) -> bool:
    """Return whether a checkpoint is being written or read now, as far as what is not reported yet tells.

    One that is sure is reported when it is over; of any other the last I/O tells.
    """
    return any(one.if_alone is None or now_ns - one.checkpoint.end_ns < QUIET_NS for one in _decoded(kept))


def _decoded(kept: Iterable[bytes]) -> Iterator[Pending]:
    for data in kept:
        with contextlib.suppress(msgspec.MsgspecError):  # of another version of the agent
            yield _decode(data)
