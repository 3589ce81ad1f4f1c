"""Saves of very many files, or by very many threads: the cost of each grows neither with their number nor with time."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.detect.calls import LINEAR, calls_of, growth_per_doubling, lines_of
from tests.detect.stage import MIB, SECOND_NS, Stage
from tests.detect.tracer import activity, life, mono

from ckptprof.detect.describe.revisions import latest_revisions
from ckptprof.detect.events.grouping import CERTAIN_GAP_NS
from ckptprof.detect.pipeline import Detector
from ckptprof.detect.transfers.estimates import TransferEstimates
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.observed.openings import FileOpenings
from ckptprof.detect.transfers.recent_files import RecentTransfers
from ckptprof.frameworks.file_names import parse_name
from ckptprof.model import Checkpoint, Kind, Session
from ckptprof.service.recorder.diagnosing import Diagnosis
from ckptprof.service.recorder.pending import encode
from ckptprof.service.recorder.split_checkpoints import SplitCheckpoints
from ckptprof.store.writer import StoreWriter
from ckptprof_collectors.samples import (
    FileEvent,
    FileFact,
    FileScan,
    Frame,
    MappedFile,
    OpenFile,
    OperationKind,
    ProcessInfo,
    ProcessIo,
    Sample,
    ThreadTime,
)

Tells = Callable[[int, float], list[Sample]]

FEW, MANY = 300, 1200  # files
FILE_BYTES = 64 << 10
LATER_S = 8
TICKS = 5  # a second
PENDING_TICKS = 4  # the recorder stores what is pending as often
PID = 10
MOST_A_ROUND = 40  # calls for a file that waits
SIZES = 250, 1_000  # files
LASTS_SECONDS = 3.0  # so that both are denser than what is compared with its neighbours: more in 10 s are more alike
A_SECOND = 100  # files, at an even rate
MOST_GROWTH = 1.3  # times as many lines for each file, of twice as many files


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


def stripped(one: int, at_s: float) -> list[Sample]:
    """Return what the trace shows of a file that is read and at once replaced by half, as without an optimizer."""
    path, smaller = f"/ckpt/step_100/part_{one}.bin", one + 1_000_000
    return [
        activity(PID, path, at_s - 0.004, at_s - 0.003, 2 * FILE_BYTES, inode=one, writes=False),
        life("created", at_s - 0.002, PID, inode=smaller, path=path),
        activity(PID, path, at_s - 0.002, at_s, FILE_BYTES, inode=smaller),
    ]


def renamed(one: int, at_s: float) -> list[Sample]:
    """Return what the trace tells of a file that gets its name once it is written, by paths in its folder."""
    path, name = f"/ckpt/step_100/part_{one}.tmp", f"part_{one}"
    made = [
        life("created", at_s, PID, inode=one, path=path),
        activity(PID, path, at_s - 0.001, at_s, FILE_BYTES, inode=one),
    ]
    return [*made, life("renamed", at_s, PID, inode=None, path=f"{name}.tmp", new_path=f"{name}.bin")]


def synced(one: int, at_s: float) -> list[Sample]:
    """Return what the trace tells of a file after which everything is synced."""
    return [*written(one, at_s), life("synced", at_s, PID, inode=None, duration_s=1e-4)]


def deleted(one: int, at_s: float) -> list[Sample]:
    """Return what the trace tells of a file that is deleted, by a path in its folder."""
    return [life("unlinked", at_s, PID, inode=None, path=f"part_{one}.bin", duration_s=1e-5)]


def gone(one: int, at_s: float) -> list[Sample]:
    """Return what polling tells of a file that was deleted."""
    return [msgspec.structs.replace(fact, is_missing=True) for fact in found(one, at_s) if isinstance(fact, FileFact)]


def large(one: int, at_s: float) -> list[Sample]:
    """Return what polling tells of a file that was written, and is large enough to be told by counters."""
    return [msgspec.structs.replace(fact, size=MIB) for fact in found(one, at_s) if isinstance(fact, FileFact)]


def heard(one: int, at_s: float) -> list[Sample]:
    """Return what is heard of such a file that somebody reads."""
    at_ns, of = mono(at_s), (1, one, MIB, f"/ckpt/step_100/part_{one}.bin")
    return [FileEvent(at_ns - 2_000_000, "opened", *of), FileEvent(at_ns - 1_000_000, "closed-read", *of)]


def named(one: int, at_s: float) -> list[Sample]:
    """Return what is heard of a file that gets another name."""
    return [FileEvent(mono(at_s), "renamed", 1, one, MIB, f"/ckpt/step_100/model_{one}.bin")]


def mapped(one: int, at_s: float) -> list[Sample]:
    """Return what the trace tells of a file that is read by page faults, and stays mapped."""
    path, fault = f"/ckpt/step_100/part_{one}.bin", int(OperationKind.FAULT)
    return [activity(PID, path, at_s - 0.001, at_s, MIB, inode=one, writes=False, closed=False, kinds=fault,
                     faulted_bytes=MIB, call_ns=None, timed_operations=0)]  # fmt: skip


def scanned(files: range, at_s: float, how: Tells) -> list[Sample]:
    """Return a look at the files that a process has open, or mapped."""
    paths = [(one, f"/ckpt/step_100/part_{one}.bin") for one in files]
    if how is mapped:
        maps = [MappedFile(2049, one, MIB, writable=False, path=path) for one, path in paths]
        return [FileScan(PID, PID * 10, (), tuple(maps))]
    size, stamp = (MIB if how is named else FILE_BYTES), Stage().stamp(at_s)
    opened = [OpenFile(3 + one, 1, one, size, os.O_WRONLY, size, stamp, path) for one, path in paths]
    return [FileScan(PID, PID * 10, tuple(opened), ())]


def frames(
    files: int,
    lasts_s: float,
    *,
    until_s: float,
    tells: Tells = written,
    later: Tells | None = None,
    looks: bool = False,
) -> Iterator[Frame]:
    """Yield what is told of so many files, one after the other, and of each `later` again; `looks` meet them open."""
    stage, told, again, before = Stage(), 0, 0, 0
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
        if looks:
            samples += scanned(range(before + 1, due + 1), at_s, tells)
        for tell, number in ((tells, due - told), (later, due_again - again)):
            moved[tell in (read, heard, mapped)] += number * SIZE_OF.get(tell, FILE_BYTES) if tell not in SILENT else 0
        before, told, again = min(due, told), due, due_again
        counted = moved[True], moved[False]
        samples.append(ProcessIo(PID, PID * 10, *counted, 9, 9, *counted, 0))
        samples.append(
            ThreadTime(PID, PID * 10, PID, int(at_s * 0.9 * SECOND_NS), 0, tick * 10, moved[False], moved[True])
        )
        yield Frame(stage.header().at_ns + int(at_s * SECOND_NS), stage.wall(at_s), ("processes",), tuple(samples))


SIZE_OF = dict.fromkeys((large, heard, named, mapped), MIB)
SILENT = (None, deleted, gone)


def saved(files: int, lasts_s: float, until_s: float, **options: Any) -> list[Checkpoint]:
    """Return what a detector tells of it."""
    detector = Detector(Stage().header())
    return [one for frame in frames(files, lasts_s, until_s=until_s, **options) for one in detector.ingest(frame)]


@pytest.mark.parametrize(
    ("tells", "later", "kinds"),
    [
        (written, None, [Kind.SAVE]),
        (read, None, [Kind.RESTORE]),
        (written, read, [Kind.SAVE, Kind.RESTORE]),
        (found, gone, [Kind.SAVE]),
        (renamed, deleted, [Kind.SAVE]),
        (synced, None, [Kind.SAVE]),
        (mapped, None, [Kind.RESTORE]),
        (named, None, [Kind.SAVE]),
    ],
)
def test_what_a_file_takes_does_not_grow_with_their_number(
    tells: Tells, later: Tells | None, kinds: list[Kind]
) -> None:
    """Four times as many files take four times the calls, not sixteen times, whatever is done to them."""
    what = {"tells": tells, "later": later, "looks": tells in (mapped, named)}
    few, many = (calls_of(partial(saved, number, 2.0, 40.0, **what)) for number in (FEW, MANY))

    assert many / MANY < LINEAR * few / FEW
    told = saved(MANY, 2.0, 40.0, **what)
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
    moved, asked = RecentTransfers.transfers_between, 0

    def counted(*of: Any, **options: Any) -> list[Transfer]:
        nonlocal asked
        asked += 1
        return moved(*of, **options)

    monkeypatch.setattr(RecentTransfers, "transfers_between", counted)
    assert saved(FEW, 2.0, 40.0, tells=tells, later=later)

    assert asked < FEW


def test_a_large_save_is_decided_when_it_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files do not wait longer because they are many, or because others arrive: both would be in memory."""
    monkeypatch.setattr("ckptprof.detect.pipeline.MANY_PARTS", FEW // 10)  # as seldom as with many more files
    until_s = 3.0 + CERTAIN_GAP_NS / SECOND_NS + 2 / TICKS

    assert [one.kind for one in saved(FEW, 2.0, until_s, later=read)] == [Kind.SAVE]


def test_a_file_that_waits_is_not_looked_into_again() -> None:
    """Files that were over long ago take few calls each time that more of their save is waited for: no name, no sum."""
    rounds = 10
    before, after = (calls_of(partial(saved, MANY, 2.0, 4.0 + seconds)) for seconds in (0.0, rounds / 2))

    assert not saved(MANY, 2.0, 4.0 + rounds / 2), "more of it is waited for"
    assert (after - before) / rounds / MANY < MOST_A_ROUND


@pytest.mark.parametrize(
    ("tells", "holder", "name", "most"),
    [(written, TransferEstimates, "_unsized_bytes", 0), (named, FileOpenings, "closing_of", 2 * FEW)],
)
def test_a_file_that_waits_is_not_queried_in_each_round(
    tells: Tells, holder: type, name: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trace counts sizes; the close of a polled file is searched for when it ends, and when one is observed."""
    query, queries = getattr(holder, name), 0

    def counted(*of: Any) -> object:
        nonlocal queries
        queries += 1
        return query(*of)

    monkeypatch.setattr(holder, name, counted)
    assert saved(FEW, 2.0, 40.0, tells=tells, looks=tells is named)

    assert queries <= most


def recorded(files: int, db: Path, level: str, made: list[Checkpoint], *, lasts_s: float, **options: Any) -> None:
    """Do all that a recorder does with so many files, and put into `made` what it stores."""
    header = msgspec.structs.replace(Stage().header(), level=level)
    detector, diagnosis, halves, reported = Detector(header), Diagnosis(), SplitCheckpoints(), list[Checkpoint]()
    for number, frame in enumerate(frames(files, lasts_s, until_s=lasts_s + 30.0, **options)):
        ended = detector.ingest(frame)
        reported += halves.join_parts(diagnosis.diagnose_all(ended))
        for one in detector.pending(closely=False) if ended or not number % PENDING_TICKS else ():
            encode(one)
    ended = detector.pause()
    detector.pending()
    reported += halves.join_parts(diagnosis.diagnose_all([*ended, *detector.finish()]))
    writer = StoreWriter(db)
    writer.start_session(Session(
        uid=header.uid, host=header.host, boot_id=header.boot_id, kernel=header.kernel, version=header.ckptprof,
        level=header.level, start_ns=header.wall_ns, end_ns=header.wall_ns, clean=True,
    ))  # fmt: skip
    made += writer.add_checkpoints(latest_revisions(reported))
    writer.close()


def lines_of_recording(files: int, tmp_path: Path, level: str, lasts_s: float, **options: Any) -> dict[str, float]:
    """Return how many lines each function of the product executes for each of so many files."""
    made: list[Checkpoint] = []
    parse_name.cache_clear()  # of the names of another test in this process
    lines = lines_of(partial(recorded, files, tmp_path / f"{files}.db", level, made, lasts_s=lasts_s, **options))
    assert files in {one.files for one in made}
    return {name: number / files for name, number in lines.items()}


@pytest.mark.parametrize(
    ("level", "tells", "later", "looks"),
    [
        ("trace", written, read, False),
        ("trace", renamed, deleted, False),
        ("trace", synced, None, False),
        ("trace", stripped, None, False),
        ("trace", mapped, None, True),
        ("poll", found, gone, True),
        ("poll", large, heard, False),
        ("poll", named, None, True),
    ],
)
def test_no_function_executes_more_lines_for_each_of_more_files(
    level: str, tells: Tells, later: Tells | None, *, looks: bool, tmp_path: Path
) -> None:
    """From the first frame to the row in the database, forecast as they come: read, written, renamed and deleted."""
    few, many = (
        lines_of_recording(files, tmp_path, level, LASTS_SECONDS, tells=tells, later=later, looks=looks)
        for files in SIZES
    )

    growth = growth_per_doubling(few, many, SIZES)
    assert {name: rate for name, rate in growth.items() if rate > MOST_GROWTH} == {}


@pytest.mark.parametrize(("level", "tells"), [("trace", written), ("trace", read), ("poll", found), ("poll", named)])
def test_an_event_that_lasts_longer_takes_as_much_for_each_file(level: str, tells: Tells, tmp_path: Path) -> None:
    """Files come at one rate: what waits is not judged, nor forecast, again and again."""
    few, many = (
        lines_of_recording(files, tmp_path, level, files / A_SECOND, tells=tells, looks=level == "poll")
        for files in SIZES
    )

    assert growth_per_doubling(few, many, SIZES)["all"] < MOST_GROWTH
