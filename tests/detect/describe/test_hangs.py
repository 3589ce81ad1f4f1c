"""A save that stopped moving is told while it hangs: which writer, where, and how; one that moves slowly is not."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from tests.detect.stage import MIB, MONOTONIC_NS, SECOND_NS, Actor, Stage, changed

from ckptprof.detect.pipeline import Detector
from ckptprof.model import HUNG, Checkpoint, Status
from ckptprof_collectors.samples import Frame, ProcessStat, Sample, ThreadSample

_STOP_S = 45.0  # in the fourth save
_LEVELS = pytest.mark.parametrize("trace", [False, True], ids=["poll", "trace"])


def _ranks(stage: Stage, *, busy: float = 1.0, exit_s: float | None = None) -> list[Actor]:
    return [
        stage.process(
            100 + rank,
            busy=busy if rank else 1.0,
            exit_s=exit_s if rank else None,
            environment={"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"},
        )
        for rank in range(2)
    ]


def _saves(stage: Stage, ranks: list[Actor], number: int = 3) -> None:
    for step in range(number):
        for rank, actor in enumerate(ranks):
            stage.write(actor, f"/run/step-{step}/rank{rank}.pt", 4.0 + 12 * step, 1.5, 64 * MIB)


def _seen(stage: Stage, frames: list[Frame]) -> tuple[dict[float, str], list[Checkpoint]]:
    """Return when the first of each text of a hang was known, and all checkpoints."""
    detector, texts, asked_ns = Detector(stage.header()), dict[float, str](), 0
    found: list[Checkpoint] = []
    for frame in frames:
        found += detector.ingest(frame)
        if frame.at_ns - asked_ns >= SECOND_NS:
            asked_ns = frame.at_ns
            detector.pending()
            for one in detector.underway:
                for text in (why.text for why in one.evidence if why.name == HUNG):
                    if text not in texts.values():
                        texts[(frame.at_ns - MONOTONIC_NS) / SECOND_NS] = text
    return texts, [one for one in found + detector.finish() if one.revision == 0]


def _stopped(pid: int, from_s: float, to_s: float, state: str = "T") -> Callable[[Sample], Sample | None]:
    def change(sample: Sample) -> Sample:
        if isinstance(sample, ProcessStat) and sample.pid == pid and from_s <= sample.user_ticks / 100 < to_s:
            return msgspec.structs.replace(sample, state=state)  # its ticks are the time: it is busy
        return sample

    return change


@_LEVELS
def test_a_stopped_writer_is_named_and_its_save_waits_for_it(*, trace: bool) -> None:
    """Stopped for 90 s, it is named within 30 s; when it has gone on, all is one save."""
    stage = Stage(hz=5, trace=trace)
    ranks = _ranks(stage)
    _saves(stage, ranks)
    stage.write(ranks[0], "/run/step-3/rank0.pt", 44, 1.5, 64 * MIB)
    stage.write(ranks[1], "/run/step-3/rank1.pt", 44, 92, 64 * MIB, pauses=((_STOP_S, _STOP_S + 90),))
    frames = changed(stage.frames(160), _stopped(101, _STOP_S, _STOP_S + 90))
    texts, found = _seen(stage, frames)
    [(known_s, text)] = texts.items()
    assert known_s - _STOP_S < 30
    assert text.startswith("rank 1 (python3 101) was stopped by a signal, 33.6 MB into rank1.pt")
    assert "1 other process has ended its part" in text
    last = found[-1]
    assert (len(found), last.step, last.files, last.status) == (4, 3, 2, Status.COMPLETE)
    assert (last.end_ns - last.start_ns) / SECOND_NS == pytest.approx(92, abs=0.5)


@_LEVELS
def test_an_idle_writer_hangs_only_if_something_is_missing(*, trace: bool) -> None:
    """A file that is whole and never closed is no hang."""
    for seconds, is_whole in ((91.5, False), (1.5, True)):
        stage = Stage(hz=5, trace=trace)
        ranks = _ranks(stage, busy=0.01)
        _saves(stage, ranks)
        stage.write(ranks[0], "/run/step-3/rank0.pt", 44, 1.5, 64 * MIB)
        pauses = () if is_whole else ((_STOP_S, _STOP_S + 90),)
        held_s = 90.0 if is_whole else 0.0  # it is never closed, but all is there
        stage.write(ranks[1], "/run/step-3/rank1.pt", 44, seconds, 64 * MIB, pauses=pauses, held_s=held_s)
        texts, _ = _seen(stage, stage.frames(120))
        assert [text.partition(",")[0] for text in texts.values()] == ["rank 1 (python3 101) is idle"] * (not is_whole)


@_LEVELS
def test_a_slow_save_that_moves_is_not_hung(*, trace: bool) -> None:
    """Its longest pause is shorter than a hang."""
    stage = Stage(hz=5, trace=trace)
    ranks = _ranks(stage, busy=0.01)
    _saves(stage, ranks)
    for rank, actor in enumerate(ranks):
        pauses = tuple((44.5 + 15.5 * at, 59.5 + 15.5 * at) for at in range(4))
        stage.write(actor, f"/run/step-3/rank{rank}.pt", 44, 63, 64 * MIB, pauses=pauses)
    texts, _ = _seen(stage, stage.frames(130))
    assert not texts


@_LEVELS
def test_a_write_that_does_not_return_hangs_in_the_first_save(*, trace: bool) -> None:
    """Without earlier saves to compare with, the call shows it."""
    stage = Stage(hz=5, trace=trace)
    actor = stage.process()
    stage.write(actor, "/run/step-0/model.pt", 4, 92, 64 * MIB, pauses=((5, 95),))
    for tick in range(25, 90 * 5):
        sample = ThreadSample(100, 1000, 100, "python3", tick, 0, 0, 0, 0, 0, "D", 1, "folio_wait")
        stage.extra.append((tick / 5, sample))
    texts, _ = _seen(stage, stage.frames(80))
    [(known_s, text)] = texts.items()
    assert known_s < 30
    assert text.startswith("python3 100 is in a read or write that does not return, 33.6 MB into model.pt")


@_LEVELS
@pytest.mark.parametrize("is_zombie", [False, True])
def test_a_save_that_one_of_its_ranks_did_not_survive_is_incomplete(*, trace: bool, is_zombie: bool) -> None:
    """The other rank lives on and waits; nobody may have waited for the dead one."""
    stage = Stage(hz=5, trace=trace)
    ranks = _ranks(stage, exit_s=None if is_zombie else _STOP_S)
    _saves(stage, ranks)
    stage.write(ranks[0], "/run/step-3/rank0.pt", 44, 1.5, 64 * MIB)
    stage.write(ranks[1], "/run/step-3/rank1.pt", 44, 1.0, 32 * MIB, held_s=200.0 if trace and is_zombie else 0.0)
    frames = stage.frames(120)
    if is_zombie:
        frames = changed(frames, _stopped(101, _STOP_S, 200, "Z"))
    _, found = _seen(stage, frames)
    reasons = [one.text for one in found[-1].evidence if one.name == "incomplete"]
    assert (found[-1].step, found[-1].status) == (3, Status.INCOMPLETE)
    assert "rank 1 (python3 101) exited after its last byte" in reasons[0]
