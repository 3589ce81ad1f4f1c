"""Unreported events, encoded in the database, so that they outlive a `kill -9` of the recorder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from ckptprof.detect.events.deferred import PendingEvent
from ckptprof.errors import StoreError
from ckptprof.model import Checkpoint
from ckptprof.store.reader import StoreReader

encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(PendingEvent).decode


def load_pending(db: str | Path) -> list[PendingEvent]:
    """Events that the previous agent had not reported, in order of their end; empty if they cannot be read."""
    try:
        with StoreReader(db) as reader:
            found = [_decode(data) for data in reader.pending().values()]
    except (StoreError, msgspec.MsgspecError):
        return []
    return sorted(found, key=lambda one: one.event.end_ns)


def unfinished_checkpoints(encoded_events: Iterable[bytes]) -> list[Checkpoint]:
    """Unfinished checkpoints among the unreported events, the oldest first; only certain ones.

    Events stored by another version of the agent are left out.
    """
    found = [one.checkpoint for one in _decoded(encoded_events) if one.if_alone is None]
    return sorted(found, key=lambda one: one.start_ns)


def _decoded(encoded_events: Iterable[bytes]) -> Iterator[PendingEvent]:
    for data in encoded_events:
        with contextlib.suppress(msgspec.MsgspecError):  # of another version of the agent
            yield _decode(data)
