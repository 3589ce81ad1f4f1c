"""What is not sure yet waits on when sampler or recorder are replaced: it is told with its series, and not without."""

from __future__ import annotations

import itertools
import time
from unittest.mock import Mock

import msgspec
import pytest
from tests.detect.stage import MIB, SECOND_NS, Actor, Stage
from tests.recording.restarting import restarted

from ckptprof.detect.describe.revisions import latest_revisions
from ckptprof.detect.events.deferred import PendingEvent
from ckptprof.detect.pipeline import Detector
from ckptprof.detect.tolerances import PATIENCE_NS
from ckptprof.model import CUT_BETWEEN, Checkpoint, Kind, Status
from ckptprof.recording import Frame, Header
from ckptprof.service.recorder import recorder as recording
from ckptprof.service.recorder.pending import encode
from ckptprof.service.recorder.recorder import Recorder
from ckptprof.service.recorder.writerthread import WriterThread

pytestmark = pytest.mark.usefixtures("replayed")
NAMES = [f"/run/epoch{number}.jls" for number in range(1, 7)]  # by Julia: one alone is nothing
EACH_SECONDS = 8
LEVELS = pytest.mark.parametrize("trace", [False, True], ids=["poll", "trace"])
DONE = pytest.mark.parametrize("done", ["sampler-killed", "recorder-killed", "agent-restarted", "agent-hurried"])


def saved(number: int, *, trace: bool, seconds: float = 0.8) -> Stage:
    """Return a stage on which a trainer without any library saves: one such alone is nothing."""
    stage = Stage(trace=trace)
    trainer: Actor = stage.process(comm="train_gpt2", program="train_gpt2", runtimes=())
    for each, name in enumerate(NAMES[:number]):
        stage.write(trainer, name, 6.0 + EACH_SECONDS * each, seconds, 120 * MIB, magic=None)
    return stage


def told(stage: Stage, cut_s: float, done: str, *, boot_id: str | None = None) -> list[Checkpoint]:
    """Return what is told of a stage by a recorder and, if it is killed, the next one."""
    header, frames = stage.header(), stage.frames(60)
    cut_ns = header.at_ns + int(cut_s * SECOND_NS)
    before, begun, after = restarted(header, frames, cut_ns, cut_ns + SECOND_NS)
    begun = msgspec.structs.replace(begun, boot_id=boot_id or header.boot_id)
    first = Recorder(None, None, pending=[])
    if done == "sampler-killed":
        return ended(first, (header, *before, begun, *after))
    detector = Detector(header)
    found = [one for frame in before for one in detector.ingest(frame)]
    left = detector.pending()
    if done == "agent-restarted":
        found += detector.pause()
        left = detector.pending()
    if done == "agent-hurried":
        found += detector.pause(lambda: True)
        left = detector.pending()
    cut = [one for one in found if one.cuts]
    kept = msgspec.msgpack.decode(
        msgspec.msgpack.encode([msgspec.Raw(encode(one)) for one in left]), type=list[PendingEvent]
    )
    return [*found, *ended(Recorder(None, None, pending=kept, truncated=cut), (begun, *after))]


def ended(recorder: Recorder, messages: tuple[Header | Frame, ...]) -> list[Checkpoint]:
    """Return what a recorder tells in all its life."""
    recorder.keep_checkpoints = True
    for message in messages:
        recorder.ingest(message)
    recorder.end(clean=True)
    return recorder.checkpoints


@LEVELS
@DONE
@pytest.mark.parametrize("cut_s", [8.2, 11.5, 16.5, 19.5])
def test_the_series_goes_on(cut_s: float, done: str, *, trace: bool) -> None:
    """The first save waits for the second one, whoever sees that; each is told once, those beside the gap as parts."""
    found = told(saved(6, trace=trace), cut_s, done)

    assert [one.path for one in found if one.kind is Kind.SAVE] == NAMES
    assert [one.bytes for one in found] == [pytest.approx(120 * MIB, rel=0.01)] * len(NAMES)
    assert {one.status for one in found if not one.cuts} == {Status.COMPLETE}
    assert sum(bool(one.cuts) for one in found) <= 2


@LEVELS
@DONE
def test_a_save_in_the_midst_of_a_series_is_one(done: str, *, trace: bool) -> None:
    """Neither part of it is as large as the others; it is told as one, with a gap."""
    found = latest_revisions(told(saved(6, trace=trace, seconds=4.0), 24.0, done))

    assert [one.path for one in found] == NAMES
    cut = found[2]
    assert cut.status is Status.INCOMPLETE
    assert CUT_BETWEEN in cut.cuts


@LEVELS
@DONE
def test_what_no_series_follows_is_nothing(done: str, *, trace: bool) -> None:
    """It was not sure before, and is not because somebody was restarted."""
    assert told(saved(1, trace=trace), 9.0, done) == []


@LEVELS
def test_after_a_boot_nobody_waits(*, trace: bool) -> None:
    """Processes and times of another boot say nothing."""
    found = told(saved(6, trace=trace), 11.5, "recorder-killed", boot_id="another")

    assert [one.path for one in found] == NAMES[1:]


def test_a_look_in_haste_keeps_what_was_foreseen_before() -> None:
    """Three saves go on, and there is time to foresee one of them at a look: after three looks all three are kept."""
    stage = Stage(trace=True)
    for number in range(3):
        trainer = stage.process(pid=1000 + number, runtimes=("torch",))
        stage.write(trainer, f"/run/{number}/model.pt", 3.0, 20.0, 200 * MIB)
    detector = Detector(stage.header())
    for frame in stage.frames(8):
        detector.ingest(frame)
    found = []
    for _ in range(3):
        haste = itertools.count()
        found.append((len(detector.pending(lambda haste=haste: next(haste) > 0)), detector.omitted_event_count))

    assert found == [(1, 2), (2, 0), (3, 0)]


def test_a_long_save_is_foreseen_often_enough_to_be_joined() -> None:
    """What goes on after a kill is joined to what was foreseen a minute before it at most, however old the save is."""
    stage = Stage(trace=True)
    trainer = stage.process(runtimes=("torch",))
    stage.write(trainer, "/run/step-1/model.pt", 3.0, 1200.0, 400 * MIB)
    detector = Detector(stage.header())
    ages_ns = []
    for frame in stage.frames(900):
        detector.ingest(frame)
        ages_ns += [frame.wall_ns - one.checkpoint.end_ns for one in detector.pending(closely=False)]

    assert ages_ns
    assert max(ages_ns) < PATIENCE_NS // 3


def test_an_end_in_haste_judges_what_it_has_time_for() -> None:
    """Ten jobs have just saved, and there is time to judge six of them: the others are left, and no end is clean so."""
    stage = Stage(trace=True)
    for number in range(10):
        trainer = stage.process(pid=1000 + number, runtimes=("torch",))
        stage.write(trainer, f"/run/{number}/model.pt", 3.0, 1.0, 20 * MIB)
    haste = itertools.count()
    writer = Mock(spec=WriterThread)
    recorder = Recorder(writer, None, pending=[])
    recorder.ingest(stage.header())
    for frame in stage.frames(5):
        recorder.ingest(frame)
    recorder.end(clean=True, hurried=lambda: next(haste) >= 6)

    told, pending = writer.put_checkpoints.call_args.args
    assert (len(told), len(pending)) == (6, 4)
    assert len({one.path for one in told} | {one.checkpoint.path for one in pending}) == 10
    assert recorder.session is not None
    assert not recorder.session.clean


def kept_at(monkeypatch: pytest.MonkeyPatch, costs_ns: list[int]) -> list[int]:
    """Return when what is pending was handed over to be stored, in ns; the looks cost these in turn."""
    clock = itertools.accumulate(one for cost in itertools.cycle(costs_ns) for one in (0, cost))
    monkeypatch.setattr(time, "thread_time_ns", lambda: next(clock))
    times_ns: list[int] = []
    writer = Mock(spec=WriterThread)
    recorder = Recorder(writer, None, pending=[])
    stage = saved(6, trace=True)
    recorder.ingest(stage.header())
    for frame in stage.frames(60):
        recorder.ingest(frame)
        times_ns += [frame.at_ns - stage.header().at_ns for call in writer.put_checkpoints.mock_calls if call.args[1]]
        writer.reset_mock()
    return times_ns


def test_what_there_is_no_room_for_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seventy jobs save at the same time: the 64 largest saves are kept, and each other one is counted once."""
    monkeypatch.setattr(recording, "_PENDING_TIMEOUT_SECONDS", 60.0)
    stage = Stage(trace=True)
    for number in range(70):
        trainer = stage.process(pid=1000 + number, runtimes=("torch",))
        stage.write(trainer, f"/run/{number}/model.pt", 3.0, 6.0, (20 + number) * MIB)
    counts = {"dropped_windows": 0, "store_errors": 0, "damaged_databases": 0}
    writer, metrics = Mock(spec=WriterThread, **counts), Mock()
    recorder = Recorder(writer, metrics, pending=[])
    recorder.ingest(stage.header())
    for frame in stage.frames(8):
        recorder.ingest(frame)
    recorder.housekeeping(0)

    *_, (_, pending) = (call.args for call in writer.put_checkpoints.mock_calls)
    assert {one.checkpoint.path for one in pending} == {f"/run/{number}/model.pt" for number in range(6, 70)}
    assert metrics.recorder.call_args.args[0].left_out_events == 6


def test_one_dear_look_keeps_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection of garbage, or a host that takes turns, may cost 0.2 s once; what always costs so is kept seldom."""
    cheap, once, always = (kept_at(monkeypatch, costs_ns) for costs_ns in ([0], [200_000_000] + [0] * 9, [200_000_000]))

    assert len(cheap) > 30
    assert once == cheap
    assert len(always) < len(cheap) / 2
