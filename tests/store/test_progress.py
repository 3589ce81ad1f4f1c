"""The points of streams in the store: as they were, in 2 KB a checkpoint, and checked when a database is hostile."""

from __future__ import annotations

import contextlib
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from ckptprof.errors import StoreError
from ckptprof.model import Checkpoint, CheckpointQuery, Progress, Stream, Succession
from ckptprof.store.checkpoint_rows import MAX_PROGRESS_BYTES, decode_progress, encode_progress
from ckptprof.store.reader import StoreReader
from ckptprof.store.series.blocks import encode
from ckptprof.store.writer import StoreWriter

_Make = Callable[..., Checkpoint]
_SECOND_NS = 10**9


def stream(number: int, points: list[Progress]) -> Stream:
    """Return a stream that moved the less the higher its number."""
    return Stream(pid=number, comm="p", path=f"/{number}", bytes=1000 - number, size=None, start_ns=1, end_ns=2,
                  progress=tuple(points))  # fmt: skip


def test_points_come_back_as_they_were(writer: StoreWriter, db: Path, checkpoint: _Make) -> None:
    """With the one checkpoint, not with a report; and again when the event is told once more."""
    whole = checkpoint()
    for _ in range(2):
        writer.add_checkpoints([whole])
    writer.add_checkpoints([checkpoint(uid="2", streams=(), progress_left_out=0)])
    with StoreReader(db) as reader:
        read, listed = reader.checkpoint(1), reader.report(CheckpointQuery()).checkpoints[0]

    assert read is not None
    assert [one.progress for one in read.streams] == [one.progress for one in whole.streams]
    assert (read.progress_left_out, listed.progress_left_out, listed.streams) == (3, 0, ())


def test_a_usual_checkpoint_keeps_all_points() -> None:
    """16 ranks that write 8 pieces each, or 4 of 32, at times and of lengths that no pattern foretells."""
    chance = random.Random(7)  # noqa: S311 # not a secret
    for ranks, number in ((16, 8), (4, 32)):
        streams = []
        for rank in range(ranks):
            at_ns, offset, points = chance.randrange(10**18, 10**18 + _SECOND_NS), 0, []
            for _ in range(number):
                length = chance.randrange(1 << 20, 1 << 24)
                until_ns = at_ns + chance.randrange(10**7, 10**8)
                points.append(Progress(at_ns, until_ns, length, offset, offset + length, Succession.NEXT, 4000 + rank))
                at_ns, offset = until_ns + chance.randrange(1, 10**6), offset + length
            streams.append(stream(rank, points))
        block, left_out = encode_progress(streams)

        assert block is not None
        assert len(block) <= MAX_PROGRESS_BYTES
        assert left_out == 0
        assert decode_progress(block, [stream(rank, []) for rank in range(ranks)]) == tuple(streams)


def test_what_takes_more_room_is_left_out_and_counted(writer: StoreWriter, db: Path, checkpoint: _Make) -> None:
    """Points of pure chance: the streams that moved most stay, whole."""
    chance = random.Random(7)  # noqa: S311 # not a secret
    streams = []
    for number in range(16):
        numbers = [[chance.randrange(1 << 60) for _ in range(5)] for _ in range(20)]
        streams.append(stream(number, [Progress(a, a + b, c, d, d + e) for a, b, c, d, e in numbers]))
    writer.add_checkpoints([checkpoint(streams=tuple(streams), progress_left_out=3)])
    with contextlib.closing(sqlite3.connect(db)) as person:
        (size,) = person.execute("SELECT length(progress) FROM checkpoints").fetchone()
    with StoreReader(db) as reader:
        read = reader.checkpoint(1)

    assert read is not None
    kept = [one for one in read.streams if one.progress]
    assert 0 < size <= MAX_PROGRESS_BYTES
    assert kept == streams[: len(kept)]
    assert 0 < len(kept) == 16 - (read.progress_left_out - 3)


@pytest.mark.parametrize(
    "progress",
    [
        "x", b"", b"junk" * 9, encode([1], ([1],)),
        encode([1], [[None]] * 7),  # no place, no length
        encode([1], ([0], [1], [None], [0], [1], [3], [None])),  # an order that there is not
        encode([1], ([0], [1], [1 << 70], [0], [1], [0], [None])),
        encode([0] * 5000, [[0] * 5000] * 7),
    ],
)  # fmt: skip
def test_damaged_points_are_told_as_damage(progress: object, writer: StoreWriter, db: Path, checkpoint: _Make) -> None:
    """In one clear line, whatever is in the column."""
    writer.add_checkpoints([checkpoint()])
    with contextlib.closing(sqlite3.connect(db)) as hostile:
        hostile.execute("UPDATE checkpoints SET progress = ?", (progress,))
        hostile.commit()
    with StoreReader(db) as reader, pytest.raises(StoreError, match="damaged"):
        reader.checkpoint(1)


def test_a_point_of_a_stream_that_is_gone_is_none() -> None:
    """The place is one of a list that a damaged database may have cut."""
    block = encode([1, 2], ([9, 0], [1, 1], [1, 1], [0, 0], [1, 1], [None, 2], [None, None]))
    (found,) = decode_progress(block, [stream(0, [])])

    assert found.progress == (Progress(2, 3, 1, 0, 1, Succession.BACK),)
