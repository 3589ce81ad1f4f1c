"""A recorder that is far behind says so, in its log and its metrics, and that it has caught up."""

from __future__ import annotations

import time

import pytest
from prometheus_client import generate_latest
from tests.detect.stage import MONOTONIC_NS, SECOND_NS, Stage

from ckptprof.export.metrics import Metrics
from ckptprof.service.recorder.recorder import Recorder

BEHIND = "the recorder is {} s behind: checkpoints are reported late, or lost if that lasts"
CAUGHT_UP = "the recorder has caught up"


def said(lateness: list[float], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return what a recorder says whose frames, one a second, come by so many seconds late."""
    recorder = Recorder(None, None)
    stage = Stage(hz=1.0)
    recorder.ingest(stage.header())
    for number, (frame, late_s) in enumerate(zip(stage.frames(len(lateness) - 1.0), lateness, strict=True)):
        monkeypatch.setattr(time, "monotonic_ns", lambda at_s=number + late_s: MONOTONIC_NS + round(at_s * SECOND_NS))
        recorder.ingest(frame)
    return [line.rpartition("ckptprof: ")[2] for line in capsys.readouterr().err.splitlines()]


def test_who_is_ten_seconds_behind_says_so_once_and_when_that_is_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is a little late is not worth a line; what stays behind is said again after some minutes."""
    slow = [0.1, 9.0, 12.0, 40.0, 11.0, 2.0, 0.5, 0.1, 13.0]
    lasting = [20.0] * 302

    assert said(slow, monkeypatch, capsys) == [BEHIND.format(12), CAUGHT_UP, BEHIND.format(13)]
    assert said(lasting, monkeypatch, capsys) == [BEHIND.format(20)] * 2


def test_its_metrics_say_by_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last frame counts."""
    metrics = Metrics()
    recorder = Recorder(None, metrics)
    stage = Stage(hz=1.0)
    recorder.ingest(stage.header())
    monkeypatch.setattr(time, "monotonic_ns", lambda: MONOTONIC_NS + 17 * SECOND_NS)
    for frame in stage.frames(2.0):
        recorder.ingest(frame)
    recorder.housekeeping(stage.wall(2.0))

    assert "ckptprof_recorder_behind_seconds 15.0" in generate_latest(metrics).decode().splitlines()
