"""Saves of very many files, or by very many threads: the cost of each grows neither with their number nor with time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec
import pytest
from tests.detect.calls import LINEAR, calls_of
from tests.detect.stage import SECOND_NS, Stage
from tests.detect.tracer import activity, life

from ckptprof.detect.pipeline import Detector
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.remembered import RecentTransfers
from ckptprof.model import Checkpoint, Kind
from ckptprof_collectors.samples import FileFact, Frame, ProcessInfo, ProcessIo, Sample

Tells = Callable[[int, float], list[Sample]]

FEW, MANY = 300, 1200  # files
FILE_BYTES = 64 << 10
LATER_S = 8
TICKS = 5  # a second
PID = 10
MOST_A_ROUND = 40  # calls for a file that waits


def written(one: int, at_s: float) -> list[Sample]:
    """Return what the trace tells of a file that is written."""
    path = f"/ckpt/step_100/part_{one}.bin"
    return [
        life("created", at_s, PID, inode=one, path=path),
        activity(PID, path, at_s - 0.001, at_s, FILE_BYTES, inode=one),
    ]


def read(one: int, at_s: float) -> list[Sample]:
    """Return what the trace tells of a file that is read."""
    return [activity(PID, f"/ckpt/step_100/part_{one}.bin", at_s - 0.001, at_s, FILE_BYTES, inode=one, writes=False)]


def by_thread(one: int, at_s: float, *, closes: bool = False) -> list[Sample]:
    """Return what the trace tells of a thread that lives for one write to a file that all of them write."""
    path, offset = "/ckpt/step_100.bin", (one - 1) * FILE_BYTES
    return [
        *([life("created", at_s, PID, inode=1, path=path)] if one == 1 else []),
        activity(
            PID, path, at_s - 0.001, at_s, FILE_BYTES, inode=1, tid=1000 + one, offset=offset, closed=closes,
            size=(one + 1) * FILE_BYTES,
        ),
    ]  # fmt: skip


def found(one: int, at_s: float) -> list[Sample]:
    """Return what polling tells of a file that was written: what its file system says."""
    at_ns = Stage().stamp(at_s)
    return [FileFact(
        pid=PID, start_ticks=PID * 10, device=1, inode=one, path=f"/ckpt/step_100/part_{one}.bin", size=FILE_BYTES,
        is_directory=False, birth_ns=at_ns, modified_ns=at_ns, changed_ns=at_ns, accessed_ns=None, magic=None,
    )]  # fmt: skip


def without_room(one: int, at_s: float) -> list[Sample]:
    """Return the same of a file of a disk that is full by then."""
    return [msgspec.structs.replace(fact, free_bytes=0) for fact in found(one, at_s) if isinstance(fact, FileFact)]


def frames(
    files: int, lasts_s: float, *, until_s: float, tells: Tells = written, later: Tells | None = None
) -> Iterator[Frame]:
    """Yield what is told of so many files, one after the other, and of each `later` again."""
    stage, told, again = Stage(), 0, 0
    moved: Counter[bool] = Counter()
    for tick in range(int(until_s * TICKS)):
        at_s = tick / TICKS
        samples: list[Sample] = []
        if not tick:
            samples.append(ProcessInfo(PID, PID * 10, 1, 0, "python3", "train.py", ("torch",), {}, None))
        due, due_again = (round(files * min(1.0, max(0.0, (at_s - since_s) / lasts_s))) for since_s in (1, 1 + LATER_S))
        for one in range(told + 1, due + 1):
            samples += tells(one, at_s)
        for one in range(again + 1, due_again + 1) if later is not None else ():
            samples += later(one, at_s)
        for tell, number in ((tells, due - told), (later, due_again - again)):
            moved[tell is read] += number * FILE_BYTES if tell is not None else 0
        told, again = due, due_again
        counted = moved[True], moved[False]
        samples.append(ProcessIo(PID, PID * 10, *counted, 9, 9, *counted, 0))
        yield Frame(stage.header().at_ns + int(at_s * SECOND_NS), stage.wall(at_s), ("processes",), tuple(samples))


def saved(files: int, lasts_s: float, until_s: float, **options: Any) -> list[Checkpoint]:
    """Return what a detector tells of it."""
    detector = Detector(Stage().header())
    return [one for frame in frames(files, lasts_s, until_s=until_s, **options) for one in detector.feed(frame)]


@pytest.mark.parametrize(
    ("tells", "later", "kinds"),
    [
        (written, None, [Kind.SAVE]),
        (read, None, [Kind.RESTORE]),
        (written, read, [Kind.SAVE, Kind.RESTORE]),
        (found, None, [Kind.SAVE]),
    ],
)
def test_what_a_file_takes_does_not_grow_with_their_number(
    tells: Tells, later: Tells | None, kinds: list[Kind]
) -> None:
    """Four times as many files take four times the calls, not sixteen times: written, read, both, or polled."""
    few, many = (calls_of(partial(saved, number, 2.0, 40.0, tells=tells, later=later)) for number in (FEW, MANY))

    assert many / MANY < LINEAR * few / FEW
    told = saved(MANY, 2.0, 40.0, tells=tells, later=later)
    assert [(one.kind, one.files) for one in told] == [(kind, MANY) for kind in kinds]


@pytest.mark.parametrize("closes", [False, True])
def test_the_cost_of_a_thread_does_not_grow_with_their_number(*, closes: bool) -> None:
    """Threads that write one file, one after another, whether they close it or not: what stays open is no save."""
    tells = partial(by_thread, closes=closes)
    few, many = (calls_of(partial(saved, number, 2.0, 20.0, tells=tells)) for number in (FEW, MANY))

    assert many / MANY < LINEAR * few / FEW
    told = [(one.kind, one.files, one.bytes) for one in saved(MANY, 2.0, 20.0, tells=tells)]
    assert told == [(Kind.SAVE, 1, MANY * FILE_BYTES)] * closes


@pytest.mark.parametrize(("tells", "later"), [(read, None), (written, read), (without_room, None)])
def test_what_a_process_moved_is_not_asked_for_each_file(
    tells: Tells, later: Tells | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each asking goes through all of it: beside a file that is restored, or after one on a disk that is full."""
    moved, asked = RecentTransfers.moved, 0

    def counted(*of: Any, **options: Any) -> list[Transfer]:
        nonlocal asked
        asked += 1
        return moved(*of, **options)

    monkeypatch.setattr(RecentTransfers, "moved", counted)
    assert saved(FEW, 2.0, 40.0, tells=tells, later=later)

    assert asked < FEW


def test_a_file_that_waits_is_not_looked_into_again() -> None:
    """Files that were over long ago take few calls each time that more of their save is waited for: no name, no sum."""
    rounds = 10
    before, after = (calls_of(partial(saved, MANY, 2.0, 4.0 + seconds)) for seconds in (0.0, rounds / 2))

    assert not saved(MANY, 2.0, 4.0 + rounds / 2), "more of it is waited for"
    assert (after - before) / rounds / MANY < MOST_A_ROUND
