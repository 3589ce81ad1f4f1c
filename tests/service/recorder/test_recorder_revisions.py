"""A checkpoint that is told again is one checkpoint: told to people once, counted once, reported as known last."""

from __future__ import annotations

import msgspec
import pytest
from prometheus_client import generate_latest
from tests.detect.stage import MIB, Stage

from ckptprof.export.metrics import Metrics
from ckptprof.model import Checkpoint
from ckptprof.service.recorder.recorder import Recorder

pytestmark = pytest.mark.usefixtures("replayed")


def test_a_save_that_becomes_durable_later_is_told_once_and_reported_as_durable() -> None:
    """Its metrics count one save."""
    stage = Stage(trace=True)
    move = stage.write(stage.process(), "/ckpt/step_1.pt", 2.0, 1.0, 100 * MIB)
    for at_s, unwritten in ((4.0, 50 * MIB), (20.0, 0)):
        stage.extra.append((at_s, msgspec.structs.replace(stage.fact(move, at_s), unwritten_bytes=unwritten)))
    told: list[Checkpoint] = []
    metrics = Metrics()
    recorder = Recorder(None, metrics, report=told.append)
    recorder.keep_checkpoints = True

    recorder.ingest(stage.header())
    for frame in stage.frames(30.0):
        recorder.ingest(frame)
    recorder.end(clean=True)

    assert [checkpoint.durable_ns for checkpoint in told] == [None]
    (kept,) = recorder.checkpoints
    assert (kept.uid, kept.revision) == (told[0].uid, 1)
    assert kept.durable_ns is not None
    page = generate_latest(metrics).decode()
    lines = [line for line in page.splitlines() if line.startswith("ckptprof_checkpoint_saves")]
    assert [line.split()[-1] for line in lines] == ["1.0"]
