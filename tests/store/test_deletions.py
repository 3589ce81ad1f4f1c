"""Which stored save a deleted file or folder was."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from ckptprof.model import Checkpoint, CheckpointQuery, Kind, Stream
from ckptprof.store.reader import StoreReader
from ckptprof.store.writer import StoreWriter

BEGIN_NS = 1_700_000_000_000_000_000


def stream(path: str, size: int, end_ns: int) -> Stream:
    """Return a file that was written."""
    return Stream(pid=1, comm="python", path=path, bytes=size, size=size, start_ns=end_ns - 1, end_ns=end_ns)


def deletions(db: Path) -> dict[str, int | None]:
    """Return when each save was deleted, by uid, in ns since the first one."""
    with StoreReader(db) as reader:
        ones = reader.report(CheckpointQuery()).checkpoints
    return {one.uid: None if (at_ns := one.moments.deleted_ns) is None else at_ns - BEGIN_NS for one in ones}


@pytest.fixture
def db(tmp_path: Path, checkpoint: Callable[..., Checkpoint]) -> Path:
    """Return saves of folders with two files, of last.pt twice, of a file with its copy; and a restore of the first."""
    path = tmp_path / "ckptprof.db"
    files = {
        1: ("/c/step-1", ("/c/step-1/model.pt", 100), ("/c/step-1/config", 1)),
        2: ("/c/step-2", ("/c/step-2/shards/0.pt", 90), ("/c/step-2/shards/1.pt", 100)),
        3: ("/c/last.pt", ("/c/last.pt", 100)),
        4: ("/c/last.pt", ("/c/last.pt", 100)),
        5: ("/c/epoch=1.pt", ("/c/epoch=1.pt", 100), ("/c/best.pt", 101)),  # the second is a copy
        6: ("/c/step-1/model.pt", ("/c/step-1/model.pt", 100)),
    }
    with closing(StoreWriter(path)) as writer:
        for number, (place, *parts) in files.items():
            end_ns = BEGIN_NS + number * 10
            streams = tuple(stream(file, size, end_ns) for file, size in parts)
            kind = Kind.RESTORE if number == 6 else Kind.SAVE
            span = {"start_ns": end_ns - 5, "end_ns": end_ns}
            writer.add_checkpoints([checkpoint(uid=str(number), kind=kind, path=place, streams=streams, **span)])
    return path


@pytest.mark.parametrize(
    ("deleted", "expected"),
    [
        ({"/c/step-1/model.pt": 100}, {"1": 100}),
        ({"/c/step-1/config": 100, "/c": 99}, {"4": 99, "5": 99}),  # a small file; the folder of others
        ({"/c/step-2": 100, "/c/step-2/shards": 99}, {"2": 99}),
        ({"/c/last.pt": 100}, {"4": 100}),  # the one before was overwritten
        ({"/c/last.pt": 35}, {"3": 35}),
        ({"/c/best.pt": 100}, {}),
        ({"/c/epoch=1.pt": 100}, {"5": 100}),
        ({"/c/last.pt": 25, "/c/other": 100}, {}),  # before they were saved
    ],
)
def test_a_save_is_gone_with_its_largest_file(db: Path, deleted: dict[str, int], expected: dict[str, int]) -> None:
    """Or with the folder that has it; the others remain."""
    with closing(StoreWriter(db)) as writer:
        writer.add_deletions({path: BEGIN_NS + at for path, at in deleted.items()})

    assert deletions(db) == dict.fromkeys("123456") | expected


def test_what_was_deleted_once_stays_so(db: Path) -> None:
    """A folder that is used again, and deleted again, changes nothing; nor does an empty list."""
    with closing(StoreWriter(db)) as writer:
        for at in (100, 200):
            writer.add_deletions({"/c/step-1": BEGIN_NS + at})
        writer.add_deletions({})

    assert deletions(db)["1"] == 100
