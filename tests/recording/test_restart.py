"""A restart in the midst of a save: what was seen of it in part is never told as complete, by neither session."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.recording.restarting import restarted

from ckptprof.detect.pipeline import Detector
from ckptprof.model import CUT_AT_END, CUT_AT_START, Checkpoint, Kind, Status
from ckptprof.recording import Frame, Header, read_file

STREAMS = Path(__file__).resolve().parents[1] / "fixtures" / "streams"
LEAST_NS = 300_000_000  # a save that is shorter is cut by chance only
AWAY_NS = 1_000_000_000
NAMES = [
    "torch-save", "torch-dcp", "safetensors-numpy", "fault-straggler", "fault-serialize-zlib", "fault-server-fuse",
    "control-gather", "mode-dcp-process",  "framework-lightning-fit-moved", "sweep-xargs",
    "framework-megatron-core-sync",
]  # fmt: skip


def saves(header: Header, frames: list[Frame], *, ended: bool = True) -> list[Checkpoint]:
    """Return the saves that one session finds; without an end, as one that is killed."""
    detector = Detector(header)
    told = [checkpoint for frame in frames for checkpoint in detector.ingest(frame)]
    told += detector.finish() if ended else []
    return [one for one in {one.uid: one for one in told}.values() if one.kind is Kind.SAVE]


@pytest.mark.slow
@pytest.mark.parametrize(("share", "ended"), [(0.7, True), (0.3, False)], ids=["ended", "killed"])
@pytest.mark.parametrize("name", [*NAMES, *(f"{name}.trace" for name in NAMES)])
def test_no_part_of_a_save_is_told_as_complete(name: str, share: float, *, ended: bool) -> None:
    """At most one session tells it as complete, and then with all of its bytes; the other says that it saw a part."""
    header, read = read_file(STREAMS / f"{name}.ckptrec.gz")
    frames = list(read)
    whole = [one for one in saves(header, frames) if one.status is Status.COMPLETE]
    long = [one for one in whole if one.end_ns - one.start_ns > LEAST_NS][:2]
    assert long
    for save in long:
        start_ns, end_ns = (at_ns - header.wall_ns + header.at_ns for at_ns in (save.start_ns, save.end_ns))
        cut_ns = int(start_ns + (end_ns - start_ns) * share)
        resumed_ns = cut_ns + min(AWAY_NS, (end_ns - cut_ns) // 2)
        before, begun, after = restarted(header, frames, cut_ns, resumed_ns)
        told = [*saves(header, before, ended=ended), *saves(begun, after)]
        same = [one for one in told if one.job == save.job]
        halves = [one for one in same if one.start_ns < save.end_ns and one.end_ns > save.start_ns]
        complete = [one for one in halves if one.status is Status.COMPLETE]

        assert len(complete) <= 1
        assert [one.bytes for one in complete] == [pytest.approx(save.bytes, rel=0.02) for _ in complete]
        for one in halves:
            cuts = [evidence.name for evidence in one.evidence if evidence.name in (CUT_AT_START, CUT_AT_END)]
            assert len(cuts) == sum(text.startswith("what it wrote ") for text in one.limitations)


def test_what_a_steady_watch_sees_is_not_cut() -> None:
    """Its jobs begin and end within it."""
    header, read = read_file(STREAMS / "torch-dcp.trace.ckptrec.gz")

    assert {one.status for one in saves(header, list(read))} == {Status.COMPLETE}
