"""When a save was deleted: before it is reported, or long after."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.detect.stage import MIB, Stage
from tests.patience import PATIENCE_SECONDS

from ckptprof.model import Checkpoint, CheckpointQuery
from ckptprof.service.recorder.deletions import MAX_DELETIONS, Deletions
from ckptprof.service.recorder.recorder import Recorder
from ckptprof.service.recorder.recorder_database import RecorderDatabase
from ckptprof.service.recorder.writerthread import WriterThread
from ckptprof.store.reader import StoreReader
from ckptprof.store.writer import StoreWriter
from ckptprof_collectors.samples import FileEvent, Frame

pytestmark = pytest.mark.usefixtures("replayed")


def stored(db: Path, *deleted: tuple[float, str]) -> dict[str | None, int | None]:
    """Return the deletions of two saves, at 2 and 10 s, by path; `deleted`: seconds and path of each deletion."""
    stage = Stage(trace=True)
    trainer = stage.process()
    for at_s, path in ((2.0, "/ckpt/step_1.pt"), (10.0, "/ckpt/step_2.pt")):
        stage.write(trainer, path, at_s, 1.0, 100 * MIB)
    for at_s, path in deleted:
        event = FileEvent(stage.header().at_ns + round(at_s * 1e9), "deleted", 0, 0, 0, path)
        stage.extra.append((at_s, event))
    writer = WriterThread(RecorderDatabase(db, lambda: StoreWriter(db), shared=False), complain=print)
    recorder = Recorder(writer, None)
    recorder.ingest(stage.header())
    for frame in stage.frames(40.0):
        recorder.ingest(frame)
    recorder.end(clean=True)
    assert writer.close(PATIENCE_SECONDS)
    with StoreReader(db) as reader:
        ones: tuple[Checkpoint, ...] = reader.report(CheckpointQuery()).checkpoints
    begin_ns = stage.wall(0.0)
    return {one.path: None if (at := one.moments.deleted_ns) is None else at - begin_ns for one in ones}


@pytest.mark.parametrize("at_s", [3.1, 30.0])
def test_a_deleted_save_is_stored_so(tmp_path: Path, at_s: float) -> None:
    """At once, before it is reported, and when all else is known of it."""
    found = stored(tmp_path / "ckptprof.db", (at_s, "/ckpt/step_1.pt"), (at_s, "/ckpt/other.pt"))

    assert found == {"/ckpt/step_1.pt": pytest.approx(at_s * 1e9, abs=1), "/ckpt/step_2.pt": None}


def test_the_latest_deletions_are_retained() -> None:
    """A job that deletes many files takes no more memory than one that deletes few; each is stored once."""
    deletions = Deletions()
    for number in range(MAX_DELETIONS + 10):
        event = FileEvent(number, "deleted", 0, 0, 0, f"/tmp/{number}")
        deletions.ingest(Frame(number, 1000 + number, (), (event,)))

    consumed = deletions.consume()
    assert len(consumed) == MAX_DELETIONS
    assert consumed[f"/tmp/{MAX_DELETIONS + 9}"] == 1000 + MAX_DELETIONS + 9
    assert deletions.consume() == {}
