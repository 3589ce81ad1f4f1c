"""A fault of the detection costs no more than what it was about to judge."""

from __future__ import annotations

import pytest
from tests.detect.stage import MIB, SECOND_NS, TORCH_ZIP, Stage

from ckptprof.detect.pipeline import Detector
from ckptprof.model import Checkpoint
from ckptprof.service.recorder.recorder import GuardedDetector
from ckptprof_collectors.samples import Frame


def test_a_fault_is_told_and_counted_and_later_saves_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The detector breaks in the middle of one save; the one before and the one after it are reported."""
    stage = Stage()
    trainer = stage.process()
    for number, at_s in enumerate((2.0, 10.0, 18.0), start=1):
        stage.write(trainer, f"/ckpt/step_{number}.pt", at_s, 0.5, 200 * MIB, magic=TORCH_ZIP)
    feed = Detector.ingest
    begin_ns = stage.header().at_ns

    def breaking(self: Detector, frame: Frame) -> list[Checkpoint]:
        if 10.4 < (frame.at_ns - begin_ns) / SECOND_NS < 10.6:
            raise ValueError("a name\nwith a line end")
        return feed(self, frame)

    monkeypatch.setattr(Detector, "ingest", breaking)
    told: list[str] = []
    detection = GuardedDetector(stage.header(), saved_paths=(), complain=told.append)

    found: list[Checkpoint] = []
    for frame in stage.frames(24.0):
        found += detection.run(lambda detector, frame=frame: detector.ingest(frame))
    found += detection.run(Detector.finish)

    assert {1, 3} <= {one.step for one in found}
    assert detection.faults == len(told) >= 1
    assert all("ValueError at test_detecting.py:" in line and "detection restarts" in line for line in told)
