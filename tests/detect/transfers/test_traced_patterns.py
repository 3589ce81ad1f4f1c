"""Order, sizes, kinds and copies as the trace counts them: exact, by bytes and by operations."""

from __future__ import annotations

from typing import Any

import pytest
from tests.detect.stage import MIB, SECOND_NS, Stage
from tests.detect.tracer import activity, sizes

from ckptprof.model import Checkpoint, Level, PatternClass
from ckptprof_collectors.samples import FileActivity, OperationKind, Sample, TraceHealth

KIB = 1 << 10


def seen(*activities: FileActivity, **process: Any) -> list[Checkpoint]:
    """Return the checkpoints of a trainer's sessions, told in one frame at 3.1 s."""
    stage = Stage(trace=True, poll=False)
    stage.process(**process)
    stage.extra = [(3.1, each) for each in activities]
    return stage.play(9)


def shaped(consecutive: float, sequential: float, *, call_bytes: int = MIB, large: float = 0.0, stretch: float = 1.0,
           **fields: Any) -> FileActivity:  # fmt: skip
    """Return a session of 100 MiB of which these shares of bytes and operations follow."""
    moved = 100 * MIB
    operations = moved // call_bytes
    return activity(
        end_s=3.0, moved=moved, call_bytes=call_bytes, **{
            "consecutive_operations": int(operations * consecutive), "consecutive_bytes": int(moved * consecutive),
            "sequential_operations": int(operations * sequential), "sequential_bytes": int(moved * sequential),
            "large_bytes": int(moved * large), "high_offset": int(moved * stretch), **fields,
        }
    )  # fmt: skip


@pytest.mark.parametrize("writes", [True, False])
@pytest.mark.parametrize(
    ("session", "expected"),
    [
        (shaped(1.0, 1.0, large=1.0), PatternClass.SEQUENTIAL_LARGE),
        (shaped(1.0, 1.0, call_bytes=64 * KIB, large=1.0), PatternClass.SEQUENTIAL_LARGE),
        (shaped(1.0, 1.0, call_bytes=4 * KIB, large=1.0), PatternClass.SEQUENTIAL_SMALL),
        (shaped(0.95, 0.97, large=0.9), PatternClass.SEQUENTIAL_LARGE),  # headers rewritten
        (shaped(0.01, 1.0, stretch=4), PatternClass.STRIDED),
        (shaped(0.01, 1.0, large=1.0, stretch=4), PatternClass.STRIDED),
        (shaped(0.01, 1.0, large=1.0, stretch=1.01), PatternClass.SEQUENTIAL_LARGE),  # gaps of alignment only
        (shaped(0.0, 0.5, call_bytes=4 * KIB), PatternClass.RANDOM),
        (shaped(0.01, 0.01), PatternClass.RANDOM),  # from the end to the begin
        (shaped(0.5, 0.75, large=0.5), PatternClass.MIXED),  # one half in order, the other at random
        (shaped(0.2, 0.8), PatternClass.MIXED),
    ],
)
def test_the_class_is_decided_by_bytes(session: FileActivity, expected: PatternClass, *, writes: bool) -> None:
    """Whatever the direction; the stream of the file has the same class as the whole."""
    fields = {name: getattr(session, name) for name in session.__struct_fields__}
    (found,) = seen(FileActivity(**{**fields, "writes": writes}))

    assert found.pattern.class_ == expected
    assert [stream.class_ for stream in found.streams] == [expected]
    assert found.level is Level.TRACE


def test_shares_and_sizes_are_those_of_the_operations() -> None:
    """Histogram, mean, median by bytes and shares add up exactly."""
    small, large = 1000 * 4 * KIB, 96 * MIB
    histogram = (*sizes(small, 4 * KIB), *sizes(large, 32 * MIB))
    (save,) = seen(
        activity(end_s=3.0, moved=small + large, operations=1003, sizes=histogram, consecutive_operations=503,
                 sequential_operations=753, direct_bytes=large)
    )  # fmt: skip
    pattern = save.pattern

    assert pattern.size_histogram == {"4096": [1000, small], str(32 * MIB): [3, large]}
    assert (pattern.operations, pattern.median_operation_bytes) == (1003, 32 * MIB)
    assert pattern.mean_operation_bytes == pytest.approx((small + large) / 1003)
    assert pattern.sequential_share_operations == pytest.approx(753 / 1003)
    assert pattern.consecutive_share_operations == pytest.approx(503 / 1003)
    assert pattern.direct_share_bytes == pytest.approx(large / save.bytes)
    assert pattern.order_known_share_bytes == 1.0


def test_one_file_in_order_and_one_at_random_are_mixed() -> None:
    """Each file has its own class."""
    other = shaped(0.0, 0.5, inode=8, path="/c/step-1/b.safetensors", session="other")
    (save,) = seen(shaped(1.0, 1.0, large=1.0, path="/c/step-1/a.safetensors"), other)

    assert save.pattern.class_ is PatternClass.MIXED
    assert {stream.class_ for stream in save.streams} == {PatternClass.SEQUENTIAL_LARGE, PatternClass.RANDOM}


@pytest.mark.parametrize("kind", [OperationKind.URING, OperationKind.AIO])
def test_sizes_of_asynchronous_operations_are_as_asked(kind: OperationKind) -> None:
    """They are counted when submitted, and what is out of sight says so; untimed calls too."""
    (save,) = seen(activity(kinds=int(kind), call_ns=None, timed_operations=0))

    assert any("with the size that was requested" in sentence for sentence in save.limitations)
    assert any("how long 100 of 100 operations took" in sentence for sentence in save.limitations)


def test_ordinary_calls_leave_only_the_disk_out_of_sight() -> None:
    """No sentence about offsets, order, or sizes is left."""
    (save,) = seen(activity())

    assert [sentence[:38] for sentence in save.limitations] == ["when the last byte left the page cache"]


def test_page_faults_are_a_restore_by_mmap() -> None:
    """Faulted bytes count up to the end of the file, as mapped; how the kernel cuts them makes it not small."""
    whole = 100 * MIB - 1000
    (restore,) = seen(
        activity(path="/c/step-1/model.safetensors", end_s=3.0, call_bytes=16 * KIB, writes=False, size=whole,
                 kinds=int(OperationKind.FAULT), faulted_bytes=100 * MIB, closed=False)
    )  # fmt: skip

    assert (restore.kind.value, restore.bytes) == ("restore", whole)
    assert (restore.pattern.mapped_share_bytes, restore.pattern.buffered_share_bytes) == (1.0, 0.0)
    assert restore.pattern.class_ is PatternClass.SEQUENTIAL_LARGE
    assert any("whole pages" in sentence for sentence in restore.limitations)


@pytest.mark.parametrize("faults", [True, False])
def test_a_mapping_is_counted_once(*, faults: bool) -> None:
    """With faults in sight the mapping that polling saw adds nothing; without them it is what there is."""
    stage = Stage(trace=True, faults=faults)
    job = stage.process()
    stage.map(job, "/c/step-1/model.safetensors", 2.0, 1.0, 400 * MIB)

    (restore,) = stage.play(9)

    assert restore.bytes == 400 * MIB
    assert restore.level is (Level.TRACE if faults else Level.POLL)
    assert {stream.observed_by for stream in restore.streams} == {"trace" if faults else "maps"}


def test_pages_that_are_mapped_without_a_fault_being_told_are_counted_by_polling() -> None:
    """Large folios come in silently: the larger number holds, no order is named, and `limitations` says why."""
    stage = Stage(trace=True)
    job = stage.process()
    mapping = stage.map(job, "/c/step-1/model.safetensors", 2.0, 1.0, 400 * MIB)
    told = activity(path=mapping.path, start_s=2.0, end_s=2.1, moved=3 * MIB, inode=mapping.inode, writes=False,
                    kinds=int(OperationKind.FAULT), faulted_bytes=3 * MIB, size=400 * MIB)  # fmt: skip
    again = activity(path=mapping.path, start_s=2.3, end_s=2.4, moved=MIB, inode=mapping.inode, writes=False,
                     kinds=int(OperationKind.FAULT), faulted_bytes=MIB, size=400 * MIB)  # fmt: skip
    stage.extra = [(2.2, told), (2.5, again)]

    (restore,) = stage.play(9)

    assert (restore.bytes, restore.files) == (400 * MIB, 1)  # of two openings the mapping is one's
    assert restore.pattern.class_ is None
    assert restore.pattern.mapped_share_bytes == 1.0
    assert any("page faults in mapped files" in sentence for sentence in restore.limitations)
    assert restore.end_ns - restore.start_ns == pytest.approx(1_000_000_000, rel=0.15)


@pytest.mark.parametrize(
    ("faults", "onward", "high", "told"),
    [(54, 53, 360, 400), (54, 30, 360, 4), (54, 53, 100, 4), (12, 12, 360, 400), (6, 6, 360, 4)],
)
def test_faults_that_leap_from_end_to_end_of_a_mapping_that_nobody_met_are_a_reading_of_it(
    faults: int, onward: int, high: int, told: int
) -> None:
    """Warm, in large folios, 150 MB are touched in 40 ms: 54 faults of 64 KiB each, 16 MiB apart."""
    stage = Stage(trace=True)
    job = stage.process()
    warm = activity(path="/c/step-1/model.safetensors", start_s=2.0, end_s=2.04, moved=4 * MIB, inode=7, writes=False,
                    kinds=int(OperationKind.FAULT), faulted_bytes=4 * MIB, size=400 * MIB, operations=faults,
                    sequential_operations=onward, low_offset=0, high_offset=high * MIB)  # fmt: skip
    stage.extra = [(2.1, warm)]

    (restore,) = stage.play(9, saved_paths=("/c/step-1/model.safetensors",))

    assert job.pid == warm.pid
    assert restore.bytes == told * MIB
    assert any("page faults in mapped files" in sentence for sentence in restore.limitations) is (told == 400)


def ended(at_s: float, told: int, silent: int) -> tuple[float, Sample]:
    """Return the session of a mapping that has ended: 64 KiB to a fault, and the rest without an event."""
    faults = told // (64 * KIB)
    return at_s + 0.3, activity(
        path="/c/step-1/model.safetensors", start_s=at_s, end_s=at_s + 0.1, moved=told + silent, writes=False,
        kinds=int(OperationKind.FAULT | OperationKind.UNMAPPED), faulted_bytes=told + silent, operations=faults + 1,
        sequential_operations=faults + 1, consecutive_operations=1, consecutive_bytes=silent, large_bytes=silent,
        sizes=((64 * KIB, faults, told), (128 * MIB, 1, silent)),
    )  # fmt: skip


def test_the_end_of_a_mapping_tells_its_bytes_but_not_their_order() -> None:
    """Of 200 MiB in large folios 10 were told of by faults: all are counted, and no order of them is invented."""
    stage = Stage(trace=True)
    job = stage.process()
    stage.extra = [ended(at_s, 10 * MIB, 190 * MIB) for at_s in (2.0, 5.0)]

    found = stage.play(14, saved_paths=("/c/step-1/model.safetensors",))

    assert job.pid == 100
    assert [(one.bytes, one.end_ns - one.start_ns < SECOND_NS) for one in found] == [(200 * MIB, True)] * 2
    for one in found:
        assert one.pattern.class_ is None
        assert one.pattern.size_histogram == {str(64 * KIB): [160, 10 * MIB]}
        assert any("order of page faults in mapped files" in sentence for sentence in one.limitations)


def test_what_was_touched_of_another_file_is_not_counted_twice() -> None:
    """Two files are mapped at once, and only one is read: memory grows by that."""
    stage = Stage(trace=True)
    job = stage.process()
    stage.map(job, "/c/a.safetensors", 2.0, 1.0, 400 * MIB, inode=7)
    mapped: dict[str, Any] = {"writes": False, "kinds": int(OperationKind.FAULT), "size": 400 * MIB}
    touched = activity(path="/c/b.safetensors", start_s=2.0, end_s=3.0, moved=390 * MIB, inode=8, session="b",
                       faulted_bytes=390 * MIB, **mapped)  # fmt: skip
    looked = activity(path="/c/a.safetensors", start_s=2.0, end_s=2.1, moved=64 * KIB, inode=7, session="a",
                      faulted_bytes=64 * KIB, **mapped)  # fmt: skip
    stage.extra = [(3.1, touched), (2.2, looked)]

    found = stage.play(9, saved_paths=("/c/a.safetensors", "/c/b.safetensors"))

    assert sum(one.bytes for one in found) == pytest.approx(400 * MIB, rel=0.05)  # and not 800


def test_a_header_that_is_read_before_the_mapping_is_one_restore_with_it() -> None:
    """Safetensors reads its header and maps the rest: nothing is dropped, nothing counted twice, no order invented."""
    stage = Stage(trace=True)
    job = stage.process()
    mapping = stage.map(job, "/c/step-1/model.safetensors", 2.0, 1.0, 400 * MIB)
    header = activity(path=mapping.path, start_s=1.99, end_s=1.991, moved=8 * KIB, inode=mapping.inode, writes=False)
    stage.extra = [(2.0, header)]

    (restore,) = stage.play(9)

    assert (restore.bytes, restore.files) == (400 * MIB + 8 * KIB, 1)
    assert restore.pattern.class_ is None
    assert any("page faults in mapped files" in sentence for sentence in restore.limitations)


def test_reading_back_what_was_written_is_no_copy() -> None:
    """A save that verifies itself reads its own file."""
    saves = [c for c in seen(activity(end_s=2.5), activity(start_s=2.5, end_s=3.0, writes=False, session="check"))
             if c.kind.value == "save"]  # fmt: skip

    assert [save.bytes for save in saves] == [100 * MIB]
    assert "copies" not in {reason.name for reason in saves[0].evidence}


def test_what_the_trace_lost_or_cannot_see_is_told() -> None:
    """Losses only if they grew while the checkpoint ran; degradations always."""
    stage = Stage(trace=True, poll=False)
    stage.process()
    stage.extra = [(at_s, health(lost)) for at_s, lost in ((0.5, 3), (1.5, 3), (2.5, 10), (8.0, 10))]
    stage.extra += [(2.1, activity()), (8.0, activity(path="/ckpt/step_2.pt", start_s=7.9, end_s=8.0, inode=8))]

    first, second = stage.play(14)

    assert "files of 7 operations and 700 B: the trace had no space for them" in first.limitations
    assert not any("no space" in sentence for sentence in second.limitations)
    assert all("splice is not seen: refused" in save.limitations for save in (first, second))


def health(lost: int) -> TraceHealth:
    """Return an account with so many lost operations."""
    return TraceHealth(100, lost, lost * 100, 0, 0, 0, {"sys_exit": "typed"}, ("splice is not seen: refused",))


@pytest.mark.parametrize("poll", [True, False])
def test_reads_are_not_counted_twice(*, poll: bool) -> None:
    """Two reads of a file by one process, one of them by two threads, are the bytes that were returned."""
    stage = Stage(trace=True, poll=poll)
    job = stage.process()
    stage.read(job, "/c/step-1/model.pt", 2.0, 1.0, 300 * MIB, inode=5)
    half = {"path": "/c/step-1/optimizer.pt", "writes": False, "inode": 6, "end_s": 3.0, "moved": 50 * MIB}
    stage.extra = [(3.1, activity(**half)), (3.1, activity(tid=101, offset=50 * MIB, **half))]

    restores = stage.play(9)

    assert [restore.bytes for restore in restores] == [400 * MIB]
    assert restores[0].files == 2
    assert (restores[0].end_ns - stage.wall(0)) / SECOND_NS == pytest.approx(3.0, abs=1e-6)
