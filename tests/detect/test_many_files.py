"""Saves of very many files: what each file takes does not grow with their number, nor with how long they wait."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tests.detect.calls import LINEAR, calls_of
from tests.detect.stage import SECOND_NS, Stage
from tests.detect.tracer import activity, life

from ckptprof.detect.pipeline import Detector
from ckptprof.model import Checkpoint
from ckptprof_collectors.samples import Frame, ProcessInfo, ProcessIo, Sample

FEW, MANY = 300, 1200  # files
FILE_BYTES = 4096
TICKS = 5  # a second
PID = 10
MOST_A_ROUND = 40  # calls for a file that waits


def frames(files: int, lasts_s: float, *, until_s: float) -> Iterator[Frame]:
    """Yield what the trace tells of a save of so many files that lasts so long."""
    stage, told = Stage(), 0
    for tick in range(int(until_s * TICKS)):
        at_s = tick / TICKS
        samples: list[Sample] = []
        if not tick:
            samples.append(ProcessInfo(PID, PID * 10, 1, 0, "python3", "train.py", ("torch",), {}, None))
        due = round(files * min(1.0, max(0.0, (at_s - 1) / lasts_s)))
        for one in range(told + 1, due + 1):
            path = f"/ckpt/step_100/part_{one}.bin"
            samples.append(life("created", at_s, PID, inode=one, path=path))
            samples.append(activity(PID, path, at_s - 0.001, at_s, FILE_BYTES, inode=one))
        told = due
        samples.append(ProcessIo(PID, PID * 10, 0, due * FILE_BYTES, 9, 9, 0, due * FILE_BYTES, 0))
        yield Frame(stage.header().at_ns + int(at_s * SECOND_NS), stage.wall(at_s), ("processes",), tuple(samples))


def saved(files: int, lasts_s: float, until_s: float) -> list[Checkpoint]:
    """Return what a detector tells of it."""
    detector = Detector(Stage().header())
    return [one for frame in frames(files, lasts_s, until_s=until_s) for one in detector.feed(frame)]


def test_what_a_file_takes_does_not_grow_with_their_number() -> None:
    """Four times as many files take four times the calls, not sixteen times."""
    few, many = (calls_of(partial(saved, number, 2.0, 40.0)) for number in (FEW, MANY))

    assert many / MANY < LINEAR * few / FEW
    assert [one.files for one in saved(MANY, 2.0, 40.0)] == [MANY]


def test_a_file_that_waits_is_not_looked_into_again() -> None:
    """Files that were over long ago take few calls each time that more of their save is waited for: no name, no sum."""
    rounds = 10
    before, after = (calls_of(partial(saved, MANY, 2.0, 4.0 + seconds)) for seconds in (0.0, rounds / 2))

    assert not saved(MANY, 2.0, 4.0 + rounds / 2), "more of it is waited for"
    assert (after - before) / rounds / MANY < MOST_A_ROUND
