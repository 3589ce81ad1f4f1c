"""`kill -9` of the recorder: what it had not told is told by the next one, once, and no part as complete."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.recording.restarting import restarted
from tests.recording.test_restart import AWAY_NS, NAMES, STREAMS, saves
from tests.recording.test_restart_joined import halves

from ckptprof.detect.describe.revisions import latest_revisions
from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.deferred import PendingEvent
from ckptprof.detect.pipeline import Detector
from ckptprof.detect.recognition import Recogniser
from ckptprof.model import Checkpoint, CheckpointQuery, Kind, Status
from ckptprof.recording import Frame, Header, read_file
from ckptprof.service.recorder.pending import load_pending
from ckptprof.service.recorder.recorder import Recorder
from ckptprof.service.recorder.recorder_database import RecorderDatabase
from ckptprof.service.recorder.storing import truncated_saves
from ckptprof.service.recorder.writerthread import WriterThread
from ckptprof.store.reader import StoreReader
from ckptprof.store.writer import StoreWriter

pytestmark = pytest.mark.usefixtures("replayed")
SECOND_NS = 1_000_000_000
LOST_NS = 2 * SECOND_NS


def record(db: Path, messages: Iterable[Header | Frame], now_ns: int, *, killed: bool) -> None:
    """Take what a sampler says, as the agent does; one that is killed comes to no end."""
    writer = WriterThread(RecorderDatabase(db, lambda: StoreWriter(db), shared=False), complain=print)
    recorder = Recorder(writer, None, truncated=truncated_saves(db, now_ns), pending=load_pending(db))
    for message in messages:
        recorder.ingest(message)
    if not killed:
        recorder.end(clean=True)
    assert writer.close(30.0)


def stored(db: Path) -> list[Checkpoint]:
    """Return the saves of a database."""
    with StoreReader(db) as reader:
        return list(reader.report(CheckpointQuery(kind=Kind.SAVE)).checkpoints)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*NAMES, *(f"{name}.trace" for name in NAMES)])
def test_a_save_in_whose_midst_the_recorder_is_killed_is_one_event(name: str, tmp_path: Path) -> None:
    """With what was seen of it until about a second before the kill, and what the next recorder sees."""
    save, first, second = halves(name)
    db = tmp_path / "ckptprof.db"

    record(db, first, save.end_ns, killed=True)
    record(db, second, save.end_ns, killed=False)

    told = stored(db)
    assert len({one.uid for one in told}) == len(told)
    own = [one for one in told if one.job.partition(":")[0] == save.job.partition(":")[0]]
    (one,) = [one for one in own if one.start_ns < save.end_ns and one.end_ns > save.start_ns]
    assert one.step in (save.step, None)
    assert 0 < one.bytes <= save.bytes * 1.02
    assert one.status is Status.INCOMPLETE or one.bytes == pytest.approx(save.bytes, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*NAMES, *(f"{name}.trace" for name in NAMES)])
def test_a_save_that_ended_two_seconds_before_the_kill_is_told(name: str, tmp_path: Path) -> None:
    """Each save of a capture, once; the recorder is killed two seconds after its end, and another one follows."""
    header, read = read_file(STREAMS / f"{name}.ckptrec.gz")
    frames = list(read)
    tried = 0
    for number, save in enumerate(saves(header, frames)):
        end_ns = save.end_ns - header.wall_ns + header.at_ns
        if not any(SECOND_NS <= frame.at_ns - end_ns < LOST_NS for frame in frames):
            continue  # the recording ended
        tried += 1
        db = tmp_path / f"{number}.db"
        before, begun, after = restarted(header, frames, end_ns + LOST_NS, end_ns + LOST_NS + AWAY_NS)

        record(db, (header, *before), save.end_ns, killed=True)
        record(db, (begun, *after), save.end_ns + LOST_NS, killed=False)

        own = [one for one in stored(db) if (one.job, one.path) == (save.job, save.path)]
        near = [one.bytes for one in own if one.start_ns < save.end_ns and one.end_ns > save.start_ns]
        assert near == [pytest.approx(save.bytes, rel=0.02)]
    assert tried


@pytest.mark.parametrize("name", ["torch-dcp.trace", "torch-save", "mode-dcp-process.trace", "sweep-xargs"])
def test_to_ask_for_what_is_not_told_changes_nothing(name: str) -> None:
    """Nobody who asks at each frame is told anything else; edges of polled files are exact to the clock's slewing."""
    header, read = read_file(STREAMS / f"{name}.ckptrec.gz")
    told: list[list[tuple[object, ...]]] = []
    for asks in (False, True):
        detector, read = Detector(header), read_file(STREAMS / f"{name}.ckptrec.gz")[1]
        found = []
        for frame in read:
            found += detector.ingest(frame)
            for pending in detector.pending() if asks else ():
                assert pending.checkpoint.bytes > 0
        found = latest_revisions([*found, *detector.finish()])
        told.append(
            [(one.kind, one.path, one.bytes, one.mode, one.status, one.evidence, one.limitations) for one in found]
        )

    assert told[0] == told[1]
    assert told[0]


def test_a_long_save_is_not_foreseen_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would be told of 8 s of writing is worked out a few times, at once when it ends, and closely if asked."""
    header, read = read_file(STREAMS / "fault-small-random.trace.ckptrec.gz")
    frames = list(read)
    worked_out: list[int] = []
    foresee = Recogniser.forecast

    def counted(recogniser: Recogniser, candidate: Candidate) -> PendingEvent | None:
        worked_out.append(candidate.bytes)
        return foresee(recogniser, candidate)

    monkeypatch.setattr(Recogniser, "forecast", counted)
    told: list[tuple[int, set[int]]] = []  # how often, and each size that was told
    for closely in (True, False):
        detector = Detector(header)
        worked_out.clear()
        sizes: set[int] = set()
        for frame in frames:
            detector.ingest(frame)
            sizes.update(one.checkpoint.bytes for one in detector.pending(closely=closely))
        told.append((len(worked_out), sizes))

    (often, closely_told), (rarely, told_rarely) = told
    assert rarely * 4 < often
    assert max(told_rarely) == max(closely_told)
