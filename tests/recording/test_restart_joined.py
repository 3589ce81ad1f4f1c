"""A sampler that is replaced in the midst of a save: the recorder tells one event, with what both sessions saw."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.recording.restarting import restarted
from tests.recording.test_restart import AWAY_NS, NAMES, STREAMS, saves

from ckptprof.detect.describe.stream_progress import MAX_POINTS
from ckptprof.model import CUT_AT_END, Checkpoint, CheckpointQuery, Kind, Status
from ckptprof.recording import Frame, Header, read_file
from ckptprof.service.recorder.recorder import Recorder
from ckptprof.service.recorder.storing import truncated_saves
from ckptprof.store.reader import StoreReader
from ckptprof.store.writer import StoreWriter

pytestmark = pytest.mark.usefixtures("replayed")
EDGE_NS = 400_000_000  # the begin of a save that polling saw in part rests on less
ONE_HALF = {  # the other is too short to be told as a save
    "framework-megatron-core-sync", "framework-megatron-core-sync.trace", "fault-server-fuse.trace",
    "safetensors-numpy", "safetensors-numpy.trace",
}  # fmt: skip


def halves(name: str) -> tuple[Checkpoint, tuple[Header | Frame, ...], tuple[Header | Frame, ...]]:
    """Return the longest save of a capture, and both sessions of a restart in its middle."""
    header, read = read_file(STREAMS / f"{name}.ckptrec.gz")
    frames = list(read)
    whole = [one for one in saves(header, frames) if one.status is Status.COMPLETE]
    most = max(one.bytes for one in whole)  # of some polled saves the half of their files is not seen
    save = max((one for one in whole if one.bytes > 0.9 * most), key=lambda one: one.end_ns - one.start_ns)
    start_ns, end_ns = (at_ns - header.wall_ns + header.at_ns for at_ns in (save.start_ns, save.end_ns))
    cut_ns = (start_ns + end_ns) // 2
    before, begun, after = restarted(header, frames, cut_ns, cut_ns + min(AWAY_NS, (end_ns - cut_ns) // 2))
    return save, (header, *before), (begun, *after)


@pytest.mark.parametrize("name", [*NAMES, *(f"{name}.trace" for name in NAMES)])
def test_a_save_in_whose_midst_the_sampler_is_replaced_is_one_event(name: str) -> None:
    """From the first start to the last end, with at most its bytes and without a stall; it says why."""
    save, first, second = halves(name)
    recorder = Recorder(None, None)
    recorder.keep_checkpoints = True

    for message in (*first, *second):
        recorder.ingest(message)
    recorder.end(clean=True)

    root = save.job.partition(":")[0]
    found = [one for one in recorder.checkpoints if one.kind is Kind.SAVE]
    told = [one for one in found if one.step == save.step and one.job.startswith(root)]
    (mine,) = [one for one in told if one.start_ns < save.end_ns and one.end_ns > save.start_ns]
    assert 0 < mine.bytes <= save.bytes * 1.02
    if mine.status is Status.COMPLETE:
        assert mine.bytes == pytest.approx(save.bytes, rel=0.02)
    if name not in ONE_HALF:
        assert any("sampler was restarted" in text for text in mine.limitations)
        assert mine.stall_ns is None
        if name.endswith(".trace"):  # of some polled ones one half leaves its positions alone
            _has_points_of_both(mine, first[-1].at_ns - first[0].at_ns + first[0].wall_ns, second[0].wall_ns)
        assert (mine.start_ns, mine.end_ns) == (
            pytest.approx(save.start_ns, abs=EDGE_NS), pytest.approx(save.end_ns, abs=EDGE_NS),
        )  # fmt: skip


def _has_points_of_both(one: Checkpoint, ended_ns: int, begun_ns: int) -> None:
    """Hold that where its streams were is known of before and after the gap."""
    points = [point for stream in one.streams for point in stream.progress]

    assert all(len(stream.progress) <= MAX_POINTS for stream in one.streams)
    assert any(point.end_ns <= ended_ns for point in points)
    assert any(point.end_ns >= begun_ns for point in points)


def test_a_save_in_whose_midst_the_agent_is_restarted_is_one_row(tmp_path: Path) -> None:
    """What the next session sees replaces the row of the first, by its uid."""
    save, first, second = halves("torch-dcp.trace")
    database = tmp_path / "ckptprof.db"
    told = []
    for messages in (first, second):
        cut = truncated_saves(database, save.end_ns) if told else []
        recorder = Recorder(None, None, truncated=cut)
        recorder.keep_checkpoints = True
        for message in messages:
            recorder.ingest(message)
        recorder.end(clean=True)
        writer = StoreWriter(database)
        writer.add_checkpoints(recorder.checkpoints)
        writer.close()
        told.append([one for one in recorder.checkpoints if one.step == save.step and one.kind is Kind.SAVE])

    assert [[any(e.name == CUT_AT_END for e in one.evidence) for one in half] for half in told] == [[True], [False]]
    with StoreReader(database) as reader:
        rows = [one for one in reader.report(CheckpointQuery(kind=Kind.SAVE)).checkpoints if one.step == save.step]
    assert [(one.uid, one.status) for one in rows] == [(told[0][0].uid, Status.INCOMPLETE)]
    assert rows[0].start_ns == told[0][0].start_ns
    assert rows[0].end_ns == pytest.approx(save.end_ns, abs=50_000_000)
    assert rows[0].bytes == sum(one.bytes for one in told[0]) + told[1][0].bytes - told[0][0].bytes
