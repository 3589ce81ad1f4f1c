"""Polling and the trace together tell what the trace alone tells: nothing twice, nothing lost, the same edges."""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.detect.observed import books
from tests.detect.stage import MIB, MONOTONIC_NS, NUMPY, SECOND_NS, Stage, play
from tests.detect.test_properties import names, paths, pids, recordings, sane, small, ticks
from tests.detect.tracer import DEVICE, activity, life

from ckptprof.detect.pipeline import Detector
from ckptprof.model import Checkpoint, Level
from ckptprof_collectors.samples import FileActivity, FileFact, FileLifeEvent, Frame

JOB = {"SLURM_JOB_ID": "1"}


def one_save(stage: Stage) -> None:
    """Write one file."""
    stage.write(stage.process(), "/ckpt/step_1.pt", 2.0, 1.0, 300 * MIB)


def ranks(stage: Stage) -> None:
    """Write one step by three processes, each with its own files, one of them temporary."""
    for rank in range(3):
        job = stage.process(100 + rank, environment={**JOB, "RANK": str(rank), "WORLD_SIZE": "3"})
        stage.write(job, f"/run/step-7/__{rank}_0.distcp", 2.0 + rank / 10, 0.7, 100 * MIB)
        if not rank:
            stage.write(job, "/run/step-7/.metadata.tmp", 3.0, 0.1, MIB, rename_to="/run/step-7/.metadata", held_s=0.05)


def in_a_row(stage: Stage) -> None:
    """Write three steps without a pause."""
    job = stage.process()
    for step in range(3):
        stage.write(job, f"/ckpt/step_{step}.pt", 2.0 + step * 0.8, 0.8, 200 * MIB)


def over_and_over(stage: Stage) -> None:
    """Write the same path every three seconds."""
    job = stage.process()
    for number in range(3):
        stage.write(job, "/ckpt/last.ckpt", 2.0 + 3 * number, 0.5, 200 * MIB)


def unseen(stage: Stage) -> None:
    """Write a file that polling never catches open."""
    stage.write(stage.process(), "/ckpt/step_1.npy", 2.0, 0.03, 100 * MIB, seen_open=False, magic=NUMPY)


def restore(stage: Stage) -> None:
    """Read two files."""
    job = stage.process()
    stage.read(job, "/ckpt/step_1.pt", 2.0, 1.0, 300 * MIB, call_bytes=100 * MIB)
    stage.read(job, "/ckpt/step_1_optim.pt", 3.1, 1.0, 300 * MIB, call_bytes=100 * MIB)


def flushed(stage: Stage) -> None:
    """Write a temporary file, flush it for a second, rename it."""
    job = stage.process(busy=1.0)
    stage.write(job, "/ckpt/step_1.pt.tmp", 2.0, 1.0, 300 * MIB, held_s=1.0, rename_to="/ckpt/step_1.pt")


def killed(stage: Stage) -> None:
    """Die in the midst of a save."""
    stage.write(stage.process(exit_s=3.0), "/ckpt/step_1.pt", 2.0, 2.0, 300 * MIB)


def layouts(stage: Stage) -> None:
    """Write without any order, with gaps, and by pwrite."""
    for number, layout in enumerate(("random", "strided", "pwrite")):
        job = stage.process(100 + number)
        stage.write(job, f"/ckpt{number}/step_1.pt", 2.0, 2.0, 300 * MIB, layout=layout)


def paused(stage: Stage) -> None:
    """Write with a barrier in the midst."""
    stage.write(stage.process(), "/ckpt/step_1.pt", 2.0, 6.0, 300 * MIB, pauses=[(3.0, 7.0)])


SCENES = [one_save, ranks, in_a_row, over_and_over, unseen, restore, flushed, killed, layouts, paused]


def told(stage: Stage) -> list[object]:
    """Return of each checkpoint what must not depend on whether polling helped."""
    return [
        (
            found.kind, found.path, found.bytes, found.files, found.start_ns, found.end_ns, found.level, found.pattern,
            found.step, found.ranks, found.durable_ns, len(found.streams), sum(point.bytes for point in found.timeline),
        )
        for found in stage.play(18)
    ]  # fmt: skip


@pytest.mark.parametrize("hz", [5.0, 25.0])
@pytest.mark.parametrize("scene", SCENES)
def test_polling_adds_nothing_to_what_the_trace_counts(scene: Callable[[Stage], None], hz: float) -> None:
    """The same checkpoints with all numbers and edges, at any rate of looks, all at trace level."""
    both, trace = Stage(hz=hz, trace=True), Stage(hz=hz, trace=True, poll=False)
    scene(both)
    scene(trace)

    expected = told(trace)

    assert expected
    assert all(entry[6] is Level.TRACE for entry in expected if isinstance(entry, tuple))
    assert expected == told(both)


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.floats(0.02, 2.0), st.integers(2, 400), st.floats(0.0, 3.0), st.booleans(), st.booleans()),
        min_size=1, max_size=4,
    )
)  # fmt: skip
def test_any_files_are_told_once(files: list[tuple[float, int, float, bool, bool]]) -> None:
    """Files of any size, speed, time and direction: the bytes are those that were moved, with polling or without."""
    stages = [Stage(hz=10, trace=True), Stage(hz=10, trace=True, poll=False)]
    for stage in stages:
        for number, (seconds, size, start_s, writes, caught) in enumerate(files):
            job = stage.process(100 + number, environment=JOB)
            path = f"/c/step-1/model_{number}.safetensors"
            if writes:
                stage.write(job, path, 2.0 + start_s, seconds, size * MIB, seen_open=caught)
            else:
                stage.read(job, path, 2.0 + start_s, seconds, size * MIB)
    both, trace = (told(stage) for stage in stages)

    assert both == trace
    assert sum(entry[2] for entry in both if isinstance(entry, tuple)) == sum(file[1] for file in files) * MIB


def test_polling_knows_the_name_that_the_trace_has_not() -> None:
    """A path that could not be resolved comes from the open files, or from the folder."""
    stage = Stage(trace=False)
    stage.write(stage.process(), "/ckpt/step_1.pt", 2.0, 1.0, 300 * MIB, inode=7)
    stage.extra = [(3.02, activity(path=None, end_s=3.0, moved=300 * MIB))]

    (save,) = stage.play(8)

    assert (save.path, save.bytes, save.level) == ("/ckpt/step_1.pt", 300 * MIB, Level.TRACE)


def test_a_file_that_another_process_wrote_is_never_credited_by_inference() -> None:
    """Its folder's file was written by A, as the trace saw: B, which wrote as much elsewhere, gets nothing of it."""
    stage = Stage()
    writer = stage.process(200)
    stage.write(writer, "/data/scratch", 2.0, 0.3, 100 * MIB, seen_open=False)
    modified_ns = stage.wall(2.3)
    stage.facts = False
    fact = FileFact(200, 2000, DEVICE, 7, "/ckpt/step_1.pt", 100 * MIB, is_directory=False, birth_ns=stage.wall(2.0),
                    modified_ns=modified_ns, changed_ns=modified_ns, accessed_ns=None, magic=None)  # fmt: skip
    stage.extra = [(2.5, activity(end_s=2.3)), (2.8, fact)]

    (save,) = stage.play(9)

    assert [(entry.pid, entry.bytes) for entry in save.writers] == [(100, 100 * MIB)]
    assert save.path == "/ckpt/step_1.pt"


def test_what_the_trace_did_not_see_is_told_at_poll_level() -> None:
    """A file for which the trace had no room is still seen by polling, and more than a twentieth makes it poll."""
    stage = Stage()
    job = stage.process()
    stage.write(job, "/run/step-1/a.distcp", 2.0, 1.0, 300 * MIB)
    stage.write(job, "/run/step-1/b.distcp", 3.0, 1.0, 300 * MIB, inode=8)
    stage.extra = [(4.1, activity(path="/run/step-1/b.distcp", start_s=3.0, end_s=4.0, moved=300 * MIB, inode=8))]

    (save,) = stage.play(16)

    assert (save.files, save.level) == (2, Level.POLL)
    assert save.bytes == pytest.approx(600 * MIB, rel=0.01)
    assert {stream.observed_by for stream in save.streams} == {"fdinfo", "trace"}
    assert save.pattern.size_histogram is None


def test_an_appended_log_is_no_save() -> None:
    """What only polling knows of how a file was opened counts against it."""
    stage = Stage(trace=True)
    stage.write(stage.process(), "/run/output", 2.0, 3.0, 100 * MIB, flags=os.O_WRONLY | os.O_APPEND,
                magic=b"abcdefghijklmnop", size_before=400 * MIB)  # fmt: skip
    detector = Detector(stage.header())

    found = [checkpoint for frame in stage.frames(10) for checkpoint in detector.ingest(frame)] + detector.finish()

    assert found == []
    assert "appends" in {reason.name for entry in detector.rejected for reason in entry.evidence}


counts = st.integers(0, 1 << 40)
moments = st.integers(MONOTONIC_NS - SECOND_NS, MONOTONIC_NS + 20 * SECOND_NS)
activities = st.builds(
    FileActivity, session=st.sampled_from("abcd"), pid=pids, start_ticks=ticks, tid=pids, comm=names, device=pids,
    inode=pids, generation=ticks, writes=st.booleans(), path=st.none() | paths, size=counts, operations=counts,
    bytes=counts, consecutive_operations=counts, consecutive_bytes=counts, sequential_operations=counts,
    sequential_bytes=counts, large_bytes=counts, direct_bytes=counts, call_ns=st.none() | counts,
    timed_operations=counts, first_ns=moments, last_ns=moments, first_offset=counts, end_offset=counts,
    low_offset=counts, high_offset=counts, kinds=st.integers(0, 511),
    sizes=st.lists(st.tuples(counts, counts, counts), max_size=2).map(tuple), faulted_bytes=counts,
    closed_ns=st.none() | moments, failed_operations=counts, failed_ns=st.none() | moments, error=st.none() | counts,
)  # fmt: skip
kinds = st.sampled_from(["created", "emptied", "synced", "closed-written", "renamed", "unlinked"])
lives = st.builds(
    FileLifeEvent, at_ns=moments, kind=kinds, error=st.none() | counts, pid=pids, start_ticks=ticks, tid=pids,
    device=st.none() | pids, inode=st.none() | pids,
    duration_ns=st.none() | counts, path=st.none() | paths, new_path=st.none() | paths,
)  # fmt: skip


@small
@given(recordings(), st.lists(st.lists(activities | lives, max_size=6), max_size=12))
def test_any_sessions_are_survived(frames: list[Frame], more: list[list[FileActivity | FileLifeEvent]]) -> None:
    """Contradictory sessions and events raise nothing and break no promise; the same frames give the same answer."""
    mixed = [
        msgspec.structs.replace(frame, samples=(*frame.samples, *(more[number] if number < len(more) else ())))
        for number, frame in enumerate(frames)
    ]

    found: list[Checkpoint] = play(Stage().header(), mixed)

    assert all(sane(checkpoint) for checkpoint in found), found
    assert found == play(Stage().header(), mixed)
    assert msgspec.json.encode(found)


def test_a_book_of_many_sessions_is_forgotten() -> None:
    """Files that are written, closed and left, by processes that end or not, leave nothing behind."""
    detector = Detector(Stage().header())
    for number in range(400):
        at_s = number / 2
        done = activity(100 + number, f"/c/file_{number}.bin", at_s, at_s + 0.1, inode=number)
        left = activity(100 + number, f"/c/left_{number}.bin", at_s, at_s + 0.1, inode=9000 + number, closed=False)
        synced = life("synced", at_s + 0.2, 100 + number, inode=5000 + number)
        at_ns = MONOTONIC_NS + int(at_s * SECOND_NS)
        detector.ingest(Frame(at_ns, at_ns, (), (done, left, synced)))
    for number in range(400):
        at_ns = MONOTONIC_NS + (200 + number) * SECOND_NS
        detector.ingest(Frame(at_ns, at_ns, (), ()))

    book = detector._transfers.traced

    assert not any(map(len, (book._open, book._files, book._ended, book._newly_ended)))
    assert not books(book.file_events)
    assert not book
    assert len(book._sessions) == 400  # that were never closed: kept, within a bound, so that nothing is told twice
