"""A file that is read again by its process is restored again; what one loader opens twice is one restore."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import msgspec
import pytest
from tests.detect.observed import history_of, observed
from tests.detect.stage import MIB, SECOND_NS, Actor, Stage, play
from tests.detect.tracer import activity

from ckptprof.detect.transfers.transfer_tracker import TransferTracker
from ckptprof.detect.world.process_counters import ProcessHistory, ProcessInterval
from ckptprof.model import Checkpoint, Kind
from ckptprof_collectors.samples import FileEvent, FileScan, Frame, OpenFile, OperationKind

LEVELS = pytest.mark.parametrize("traced", [False, True])
PATH = "/ckpt/step_7.pt"
SIZE = 300 * MIB
INODE = 7
SAVED = (PATH,)


def look(stage: Stage, job: Actor, path: str, at_s: float, size: int = 64 << 10) -> None:
    """Read the begin of a file, as of a header or a directory."""
    stage.read(job, path, at_s, 0.1, size, layout="part", inode=INODE).size_before = SIZE


def load(stage: Stage, job: Actor, at_s: float, *, mapped: bool) -> None:
    """Restore once, in a second: by read, or by a mapping beside a descriptor."""
    if mapped:
        look(stage, job, PATH, at_s)
        stage.map(job, PATH, at_s + 0.1, 0.9, SIZE, from_disk=True, inode=INODE)
    else:
        stage.read(job, PATH, at_s, 1.0, SIZE, inode=INODE)


def seconds(found: list[Checkpoint]) -> list[float]:
    """Return when they begin."""
    return [(one.start_ns - Stage().wall(0)) / SECOND_NS for one in found]


@LEVELS
@pytest.mark.parametrize("ways", list(itertools.product([False, True], repeat=2)))
def test_a_file_that_is_read_again_is_restored_again(traced: bool, ways: tuple[bool, bool]) -> None:  # noqa: FBT001 - a parameter
    """By read or by mmap, two and a half seconds after the first time."""
    stage = Stage(trace=traced, faults=traced)
    job = stage.process()
    for number, mapped in enumerate(ways):
        load(stage, job, 2.0 + 3.5 * number, mapped=mapped)

    restores = stage.play(30, saved_paths=SAVED)

    assert [one.kind for one in restores] == [Kind.RESTORE] * 2
    assert seconds(restores) == pytest.approx([2.0, 5.5], abs=0.15)
    assert [one.bytes / SIZE for one in restores] == pytest.approx([1.0, 1.0], rel=0.01)


def seldom_mapped(frames: list[Frame]) -> Iterator[Frame]:
    """Leave out four of five looks at mappings: they cost more than those at descriptors."""
    for number, frame in enumerate(frames):
        seen = [
            msgspec.structs.replace(sample, mapped=None) if isinstance(sample, FileScan) and number % 5 else sample
            for sample in frame.samples
        ]
        yield msgspec.structs.replace(frame, samples=tuple(seen))


@LEVELS
def test_a_descriptor_beside_a_cold_mapping_adds_nothing(traced: bool) -> None:  # noqa: FBT001 - a parameter
    """What the process had fetched came in through the mapping: each byte is counted once."""
    stage = Stage(trace=traced, faults=traced)
    job = stage.process()
    stage.read(job, PATH, 2.0, 0.7, 10 * MIB, layout="part", inode=INODE).size_before = SIZE
    stage.map(job, PATH, 2.1, 0.9, SIZE, from_disk=True, inode=INODE)
    frames = list(seldom_mapped(stage.frames(30)))

    (restore,) = play(stage.header(), frames, saved_paths=SAVED)

    assert SIZE <= restore.bytes <= SIZE + 10 * MIB
    assert restore.unique_bytes == SIZE


@LEVELS
@pytest.mark.parametrize("pause_s", [0.3, 3.0])
def test_a_look_at_the_header_and_the_reading_are_one(traced: bool, pause_s: float) -> None:  # noqa: FBT001 - a parameter
    """The header is read, the model made, and then the tensors are read."""
    stage = Stage(trace=traced)
    job = stage.process()
    look(stage, job, PATH, 2.0)
    stage.read(job, PATH, 2.1 + pause_s, 1.0, SIZE, inode=INODE)

    restores = stage.play(30, saved_paths=SAVED)

    assert [one.bytes // SIZE for one in restores] == [1]


def test_threads_and_openings_that_share_a_file_are_one() -> None:
    """Two threads read a half each, the second one begins when the first is done for long."""
    stage = Stage(trace=True, poll=False)
    stage.process()
    half = SIZE // 2
    for number in range(2):
        at_s = 2.0 + 2.5 * number
        session = activity(path=PATH, start_s=at_s, end_s=at_s + 1, moved=half, offset=number * half, writes=False,
                           tid=101 + number, size=SIZE)  # fmt: skip
        stage.extra.append((at_s + 1.02, session))

    (restore,) = stage.play(30, saved_paths=SAVED)

    assert restore.bytes == SIZE


def test_calls_that_go_on_in_the_session_of_a_mapping_are_another_restore() -> None:
    """The kernel is not told that a mapping is gone: later calls of its thread count in the same session."""
    stage = Stage(trace=True, poll=False)
    stage.process()
    begin = activity(path=PATH, start_s=2.0, end_s=2.5, moved=SIZE, writes=False, closed=False, faulted_bytes=SIZE,
                     call_ns=None, timed_operations=0, kinds=int(OperationKind.FAULT))  # fmt: skip
    more = activity(path=PATH, start_s=2.0, end_s=6.5, moved=2 * SIZE, writes=False, closed=True, faulted_bytes=SIZE,
                    session=begin.session, size=SIZE, high_offset=SIZE, end_offset=SIZE, call_ns=SECOND_NS // 2,
                    kinds=int(OperationKind.FAULT | OperationKind.READ_WRITE))  # fmt: skip
    stage.extra = [(2.52, begin), (6.51, more)]

    first, second = stage.play(30, saved_paths=SAVED)

    assert (first.bytes, second.bytes) == (SIZE, SIZE)
    assert seconds([first, second]) == pytest.approx([2.0, 6.0], abs=0.1)


def test_a_file_that_is_read_twice_without_a_pause_counts_twice() -> None:
    """DeepSpeed loads its model states once for what is in them and once for the model, within one restore."""
    stage = Stage()
    job = stage.process()
    for number in range(2):
        stage.read(job, PATH, 2.0 + 0.5 * number, 0.5, SIZE, inode=INODE)

    (restore,) = stage.play(30, saved_paths=SAVED)

    assert (restore.bytes, restore.unique_bytes) == (2 * SIZE, SIZE)


def test_a_position_that_goes_back_while_other_files_are_read_is_no_second_reading() -> None:
    """What its process read is the other file's: the directory of a zip file lies at its end, and is read first."""
    stage = Stage()
    job = stage.process()
    stage.read(job, PATH, 2.0, 0.3, SIZE, layout="random", inode=INODE)
    stage.read(job, "/ckpt/step_7.bin", 2.0, 1.0, SIZE, inode=INODE + 1)

    found = stage.play(30, saved_paths=(PATH, "/ckpt/step_7.bin"))

    assert sum(one.bytes for one in found) <= 2 * SIZE


def read_whole(start_ns: int, end_ns: int) -> ProcessHistory:
    """Return a process whose calls returned as much as the file holds."""
    counted = ProcessInterval(start_ns, end_ns, read_bytes=SIZE, reads=1, busy=1.0, returned_bytes=SIZE)
    return history_of([counted], None, None, start_ns, end_ns)


@pytest.mark.parametrize(("opened", "times"), [(True, 2), (False, 1)])
def test_a_file_that_was_opened_anew_is_read_anew_though_it_was_met_at_one_place(*, opened: bool, times: int) -> None:
    """PyTorch reads its first tensor in one call: a short reading may be met at the header only, twice."""
    begun, look_ns = 10 * SECOND_NS, SECOND_NS // 50
    transfers = TransferTracker(observed({(100, 1): read_whole(begun, begun + look_ns)}))
    if opened:
        transfers.openings.record(FileEvent(begun, "opened", 8, INODE, SIZE, PATH))
    for number in range(2):
        file = OpenFile(3, 8, INODE, 4096, os.O_RDONLY, SIZE, 0, PATH)
        transfers.polled.ingest(begun + number * look_ns, FileScan(100, 1, (file,), None))
    transfers.polled.close_all((100, 1), begun + SECOND_NS)

    assert len(transfers.polled.take_ended()) == times


def test_a_file_that_stays_open_at_its_end_is_not_read_anew_when_others_open_it() -> None:
    """The other rank loads it a little later."""
    transfers = TransferTracker(observed({(100, 1): read_whole(10 * SECOND_NS, 11 * SECOND_NS)}))
    for number in range(3):
        at_ns = (500 + number) * SECOND_NS // 50
        file = OpenFile(3, 8, INODE, SIZE, os.O_RDONLY, SIZE, 0, PATH)
        transfers.openings.record(FileEvent(at_ns, "opened", 8, INODE, SIZE, PATH))
        transfers.polled.ingest(at_ns, FileScan(100, 1, (file,), None))
    transfers.polled.close_all((100, 1), 11 * SECOND_NS)

    assert len(transfers.polled.take_ended()) == 1
