"""A recorder that is behind says so in its log, metrics, health, checkpoints and reports, and does less far behind."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from unittest.mock import Mock

import msgspec
import pytest
from prometheus_client import generate_latest
from tests.detect.stage import MIB, SECOND_NS, Stage

from ckptprof.detect.pipeline import Detector
from ckptprof.detect.transfers.transfer_tracker import TransferTracker
from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.detect.world.world import World
from ckptprof.export.metrics import Metrics
from ckptprof.model import LATE, Checkpoint, Report, Watched
from ckptprof.recording import Frame
from ckptprof.report import answer
from ckptprof.service.recorder.recorder import Recorder
from ckptprof.service.recorder.writerthread import WriterThread
from ckptprof_collectors.samples import ThreadSample

LATE_TEXT = "the recorder is {} s behind: checkpoints are reported late"
LEFT_OUT = "thread states and Python stacks"
FAR_TEXT = f"the recorder is {{}} s behind: until it has caught up it leaves out {LEFT_OUT}"
CAUGHT_UP = "the recorder has caught up: it was up to {} s behind"


def ingest(recorder: Recorder, frames: Iterable[Frame], lateness: Iterable[float], patch: pytest.MonkeyPatch) -> None:
    """Let frames arrive late by so many seconds."""
    for frame, late_s in zip(frames, lateness, strict=False):
        now_ns = frame.at_ns + round(late_s * SECOND_NS)
        patch.setattr(time, "monotonic_ns", lambda now_ns=now_ns: now_ns)
        recorder.ingest(frame)


@pytest.mark.parametrize(
    ("lateness", "lines"),
    [
        ([0.1, 9, 12, 40, 11, 2, 0.5, 0.1, 13], [LATE_TEXT.format(12), CAUGHT_UP.format(40), LATE_TEXT.format(13)]),
        ([20.0] * 302, [LATE_TEXT.format(20)]),
        ([30.0, 61.0, 80.0, 50.0, 70.0, 0.2], [LATE_TEXT.format(30), FAR_TEXT.format(61), CAUGHT_UP.format(80)]),
        ([65.0, 0.2], [FAR_TEXT.format(65), CAUGHT_UP.format(65)]),
    ],
    ids=["twice", "long", "far", "far at once"],
)  # fmt: skip
def test_each_time_it_is_behind_is_logged_once(
    lateness: list[float], lines: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Short delays are not logged; the end of a long one is."""
    recorder, stage = Recorder(None, None), Stage(hz=1.0)
    recorder.ingest(stage.header())
    ingest(recorder, stage.frames(len(lateness)), lateness, monkeypatch)

    assert [line.rpartition("ckptprof: ")[2] for line in capsys.readouterr().err.splitlines()] == lines


def test_metrics_and_health_count_a_frame_whose_evaluation_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are read by another thread while the recorder computes."""
    metrics = Metrics()
    recorder, stage = Recorder(None, metrics), Stage(hz=1.0)
    seen: list[tuple[str, bool]] = []

    def evaluate(_: Detector, frame: Frame, __: int) -> list[Checkpoint]:
        monkeypatch.setattr(time, "monotonic_ns", lambda: frame.at_ns + 17 * SECOND_NS)
        page = generate_latest(metrics).decode().splitlines()
        seen.append((recorder.health, "ckptprof_recorder_behind_seconds 17.0" in page))
        return []

    recorder.ingest(stage.header())
    recorder.housekeeping(stage.wall(0.0))
    assert recorder.health == "ok"
    monkeypatch.setattr(Detector, "ingest", evaluate)
    ingest(recorder, stage.frames(0.0), [0.1], monkeypatch)

    assert seen == [("17 s behind: checkpoints are reported late", True)]
    assert recorder.health == "ok"  # until the next frame shows the delay


def test_the_recorders_own_health_is_made_as_rarely_as_the_samplers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes, memory and counts of all that is retained: a tenth of what it costs to record one job."""
    metrics, clock = Mock(), iter(range(100, 110))
    recorder = Recorder(None, metrics)
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    for _ in range(10):
        recorder.housekeeping(0)

    assert metrics.recorder.call_count == 2


def with_threads(frames: Iterable[Frame], pid: int) -> Iterator[Frame]:
    """Add a thread's sample to each frame."""
    for number, frame in enumerate(frames):
        thread = ThreadSample(
            pid=pid, start_ticks=pid * 10, tid=pid, comm="python3", on_cpu_ns=number, waited_ns=0, user_ticks=0,
            system_ticks=0, major_faults=0, block_delay_ticks=None, state="R", call=None, wait=None,
        )  # fmt: skip
        yield msgspec.structs.replace(frame, samples=(*frame.samples, thread))


def saved_late(late_s: float, patch: pytest.MonkeyPatch) -> tuple[list[int], int, Checkpoint]:
    """Return how many samples of threads detection got of each frame, how often it decided, and the save."""
    stage = Stage(trace=True)
    trainer = stage.process()
    stage.write(trainer, "/run/step_10.pt", 3.0, 1.0, 20 * MIB)
    recorder, counts, turns = Recorder(None, None), list[int](), list[int]()
    recorder.keep_checkpoints = True
    observe, decide = World.ingest, TransferTracker.update

    def counted(world: World, frame: Frame) -> FrameSamples:
        counts.append(sum(isinstance(sample, ThreadSample) for sample in frame.samples))
        return observe(world, frame)

    def turn(tracker: TransferTracker, now_ns: int) -> None:
        turns.append(now_ns)
        decide(tracker, now_ns)

    patch.setattr(World, "ingest", counted)
    patch.setattr(TransferTracker, "update", turn)
    recorder.ingest(stage.header())
    ingest(recorder, with_threads(stage.frames(9.0), trainer.pid), itertools.repeat(late_s), patch)
    recorder.end(clean=True)
    (save,) = recorder.checkpoints
    return counts, len(turns), save


@pytest.mark.parametrize(("late_s", "is_late", "is_brief"), [(0.5, False, False), (30, True, False), (75, True, True)])
def test_a_save_says_what_lateness_cost(
    late_s: float, monkeypatch: pytest.MonkeyPatch, *, is_late: bool, is_brief: bool
) -> None:
    """Far behind, detection gets no threads and decides less often; the save is found all the same, and says so."""
    counts, turns, save = saved_late(late_s, monkeypatch)
    told = answer.conclude(Report(host="h", watched=Watched(start_ns=1, end_ns=2), checkpoints=(save,))).opening

    assert save.bytes == 20 * MIB
    assert set(counts) == ({0} if is_brief else {1})
    assert (turns < 9 * 2 / 2) is is_brief  # in nine seconds, of which each has two turns on time
    assert [one.text for one in save.evidence if one.name == LATE] == (
        [f"decided while the recorder was up to {late_s} s behind"] if is_late else []
    )
    assert any(sentence.startswith(LEFT_OUT) for sentence in save.limitations) is is_brief
    assert (told[0][0] == "Late") is is_late


def test_a_recorder_that_is_behind_leaves_open_events_to_the_next_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is decided at its stop; the next one reports the save, once and whole."""
    stage = Stage(trace=True)
    stage.write(stage.process(), "/run/step_10.pt", 3.0, 1.0, 20 * MIB)
    writer = Mock(spec=WriterThread)
    first = Recorder(writer, None, pending=[])
    first.ingest(stage.header())
    ingest(first, stage.frames(5.0), itertools.repeat(30.0), monkeypatch)
    first.end(clean=True, hurried=lambda: first.is_behind)
    decided, pending = writer.put_checkpoints.call_args.args

    second = Recorder(None, None, pending=pending)
    second.keep_checkpoints = True
    second.ingest(msgspec.structs.replace(stage.header(), uid="second"))
    second.end(clean=True)

    assert decided == []
    assert [(one.path, one.bytes) for one in second.checkpoints] == [("/run/step_10.pt", 20 * MIB)]
