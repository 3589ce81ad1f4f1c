"""What holds for any samples: nothing is raised, invented or counted twice; the same frames give the same answer."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.detect.stage import MIB, MONOTONIC_NS, SECOND_NS, WALL_NS, Stage, play

from ckptprof.detect.pipeline import Detector
from ckptprof.detect.world.process_counters import GAP_NS, ProcessHistory, find_runs
from ckptprof.model import Checkpoint
from ckptprof.recording import Header
from ckptprof_collectors.samples import (
    FileFact,
    FileScan,
    Frame,
    MappedFile,
    OpenFile,
    ProcessExit,
    ProcessInfo,
    ProcessIo,
    ProcessStat,
)

small = settings(max_examples=60)
counts = st.integers(0, 1 << 40)
pids = st.integers(1, 4)
ticks = st.integers(0, 2)
stamps = st.integers(0, 1 << 62) | st.integers(WALL_NS - SECOND_NS, WALL_NS + 20 * SECOND_NS)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
paths = st.sampled_from(["/ckpt/step_1.pt", "/ckpt/step_2.pt", "/c/step-3/.metadata", "/a.npy", "/", "x"]) | names
io_samples = st.builds(ProcessIo, pids, ticks, counts, counts, counts, counts, counts, counts, counts)
stat_samples = st.builds(
    ProcessStat, pid=pids, start_ticks=ticks, state=names, user_ticks=counts, system_ticks=counts,
    minor_faults=counts, major_faults=counts, threads=counts, rss_bytes=st.none() | counts,
    rss_file_bytes=st.none() | counts,
)  # fmt: skip
files = st.builds(OpenFile, counts, pids, pids, counts, st.integers(0, 1 << 24), counts, stamps, paths)
mapped = st.builds(MappedFile, pids, pids, counts, st.booleans(), paths)
scans = st.builds(
    FileScan, pids, ticks, st.lists(files, max_size=3).map(tuple), st.none() | st.lists(mapped, max_size=2).map(tuple)
)
facts = st.builds(
    FileFact, pid=pids, start_ticks=ticks, device=pids, inode=pids, path=paths, size=counts, is_directory=st.booleans(),
    birth_ns=st.none() | stamps, modified_ns=stamps, changed_ns=stamps, accessed_ns=st.none() | stamps,
    magic=st.none() | st.binary(max_size=16), is_missing=st.booleans(),
)  # fmt: skip
infos = st.builds(
    ProcessInfo, pid=pids, start_ticks=ticks, parent_pid=pids, uid=st.none() | counts, comm=names, program=names,
    runtimes=st.sampled_from([(), ("torch",), ("numpy", "cuda")]),
    environment=st.dictionaries(st.sampled_from(["RANK", "WORLD_SIZE", "SLURM_JOB_ID"]), names, max_size=2),
    cgroup=st.none() | names,
)  # fmt: skip
exits = st.builds(ProcessExit, pids, ticks)
samples = io_samples | stat_samples | scans | facts | infos | exits


@st.composite
def recordings(draw: st.DrawFn) -> list[Frame]:
    """Return frames of arbitrary valid samples, their clock going forward as CLOCK_MONOTONIC does."""
    at_ns, frames = MONOTONIC_NS, []
    for _ in range(draw(st.integers(0, 12))):
        at_ns += draw(st.sampled_from([0, 1, SECOND_NS // 25, SECOND_NS, 5 * SECOND_NS, 3600 * SECOND_NS]))
        read = draw(st.sampled_from([("processes",), ("processes", "disks"), ()]))
        frames.append(Frame(at_ns, draw(stamps), read, tuple(draw(st.lists(samples, max_size=8)))))
    return frames


def sane(checkpoint: Checkpoint) -> bool:
    """Return whether a checkpoint keeps the promises of the model."""
    shares = (
        checkpoint.pattern.sequential_share_bytes, checkpoint.pattern.consecutive_share_bytes,
        checkpoint.pattern.large_share_bytes, checkpoint.pattern.order_known_share_bytes,
        checkpoint.pattern.buffered_share_bytes, checkpoint.pattern.direct_share_bytes,
    )  # fmt: skip
    return (
        checkpoint.start_ns <= checkpoint.end_ns
        and checkpoint.bytes > 0
        and checkpoint.files > 0
        and sum(writer.bytes for writer in checkpoint.writers) == checkpoint.bytes
        and all(share is None or 0.0 <= share <= 1.0 for share in shares)
        and all(point.bytes >= 0 and point.start_ns < point.end_ns for point in checkpoint.timeline)
    )


@small
@given(recordings())
def test_any_valid_frames_are_survived_and_what_is_found_is_sane(frames: list[Frame]) -> None:
    """Contradictory samples, impossible stamps and hostile names raise nothing and break no promise."""
    found = play(Stage().header(), frames)

    assert all(sane(checkpoint) for checkpoint in found), found
    assert msgspec.json.encode(found)


@small
@given(recordings())
def test_the_same_frames_give_the_same_checkpoints(frames: list[Frame]) -> None:
    """Detection has no clock and no chance in it, uid included."""
    assert play(Stage().header(), frames) == play(Stage().header(), frames)


@small
@given(st.lists(st.tuples(counts, counts), min_size=2, max_size=40))
def test_intervals_add_up_to_the_counters_difference(values: list[tuple[int, int]]) -> None:
    """Whatever the counters do, forward moves are counted once and backward ones not at all."""
    history = ProcessHistory()
    expected = [0, 0]
    before: tuple[int, int] | None = None
    for number, (read, written) in enumerate(values):
        io = ProcessIo(1, 1, read, written, 0, 0, 0, 0, 0)
        history.observe((number + 1) * SECOND_NS, number * SECOND_NS, io, None, 100)
        if before is not None and read >= before[0] and written >= before[1]:
            expected = [expected[0] + read - before[0], expected[1] + written - before[1]]
        before = (read, written)

    found = [sum(i.read_bytes for i in history.intervals), sum(i.written_bytes for i in history.intervals)]
    assert expected == found
    assert all(i.start_ns < i.end_ns for i in history.intervals)


@small
@given(
    st.lists(st.tuples(st.integers(1, 2 * GAP_NS), st.integers(1, SECOND_NS), st.integers(0, 64 * MIB)), max_size=40)
)
def test_runs_neither_overlap_nor_exceed_their_intervals(steps: list[tuple[int, int, int]]) -> None:
    """Interpolated edges stay inside the intervals they come from, and no byte is in two runs."""
    at_ns, intervals = 0, []
    for pause_ns, span_ns, count in steps:
        intervals.append((at_ns + pause_ns, at_ns + pause_ns + span_ns, count))
        at_ns += pause_ns + span_ns
    found = find_runs(intervals)

    assert sum(run.bytes for run in found) <= sum(count for _, _, count in intervals)
    assert all(run.start_ns <= run.end_ns for run in found)
    assert all(earlier.end_ns <= later.start_ns for earlier, later in itertools.pairwise(found))
    assert all(
        any(low <= run.start_ns <= high for low, high, _ in intervals)
        and any(low <= run.end_ns <= high for low, high, _ in intervals)
        for run in found
    )


@small
@given(
    seconds=st.floats(0.2, 4.0), size=st.integers(8, 600), start_s=st.floats(1.0, 3.0), hz=st.sampled_from([10.0, 25.0])
)
def test_any_sequential_save_is_found_whole(seconds: float, size: int, start_s: float, hz: float) -> None:
    """One even writer of any size and speed is one save of all its bytes, within a tick."""
    stage = Stage(hz=hz, jitter=0.2)
    stage.write(stage.process(), "/ckpt/step_5.pt", start_s, seconds, size * MIB)

    (save,) = stage.play(start_s + seconds + 4)

    assert size * MIB == save.bytes
    assert (save.start_ns - stage.wall(0)) / SECOND_NS == pytest.approx(start_s, abs=1 / hz)
    assert (save.end_ns - stage.wall(0)) / SECOND_NS == pytest.approx(start_s + seconds, abs=1 / hz)


def held(detector: Detector) -> dict[str, int]:
    """Return how many things a detector holds on to."""
    histories, transfers = detector._world.histories.values(), detector._transfers
    return {
        "intervals": sum(len(history.intervals) for history in histories),
        "histories": len(histories),
        "ended": len(detector._world.ended),
        "waiting": len(transfers.waiting),
        "streams": len(transfers.polled.open_transfers()),
        "scans": len(transfers.polled._processes),
        "facts": len(transfers.facts._facts) + len(transfers.facts._fresh),
    }


def test_a_hundred_thousand_quiet_frames_leave_little_behind() -> None:
    """Processes that come, write a little and go for hours hold no memory."""
    header: Header = Stage().header()
    detector = Detector(header)
    for number in range(100_000):
        at_ns = MONOTONIC_NS + number * SECOND_NS // 10
        pid = 100 + number // 50
        made: list[Any] = [ProcessIo(pid, 1, number, number * 4096, number, number, 0, 0, 0)]
        if number % 50 == 49:
            made.append(ProcessExit(pid, 1))
        detector.ingest(Frame(at_ns, at_ns, ("processes",), tuple(made)))

    assert all(count <= 2_000 for count in held(detector).values()), held(detector)


def test_many_saves_leave_little_behind() -> None:
    """A thousand files, opened, written and closed, are forgotten two minutes after."""
    stage = Stage(hz=5)
    for number in range(40):
        job = stage.process(100 + number, born_s=number * 1.0, exit_s=number + 0.9)
        stage.write(job, f"/ckpt/step_{number}.pt", number + 0.1, 0.5, 4 * MIB)
    detector = Detector(stage.header())
    frames = stage.frames(41)
    for frame in frames:
        detector.ingest(frame)
    for number in range(400):
        at_ns = frames[-1].at_ns + number * SECOND_NS
        detector.ingest(Frame(at_ns, at_ns, ("processes",), ()))

    assert {0} == set(held(detector).values()), held(detector)


def test_a_watched_process_that_nobody_reads_any_more_is_forgotten_too() -> None:
    """A process whose end was never told (it was let go) does not stay for ever."""
    detector = Detector(Stage().header())
    for number in range(6_000):
        at_ns = MONOTONIC_NS + number * SECOND_NS // 100
        detector.ingest(Frame(at_ns, at_ns, ("processes",), (ProcessIo(number + 2, 1, 0, number, 0, 0, 0, 0, 0),)))

    assert held(detector)["histories"] <= 4_096


def test_frames_without_samples_are_the_passing_of_time() -> None:
    """A save is told once its quiet is over, by empty frames alone."""
    stage = Stage()
    stage.write(stage.process(), "/ckpt/step_1.pt", 2.0, 1.0, 200 * MIB)
    detector = Detector(stage.header())
    frames = stage.frames(5.5)
    found = [checkpoint for frame in frames for checkpoint in detector.ingest(frame)]
    for number in range(1, 30):
        at_ns = frames[-1].at_ns + number * SECOND_NS // 2
        found += detector.ingest(Frame(at_ns, at_ns - MONOTONIC_NS + WALL_NS, (), ()))

    assert [checkpoint.bytes for checkpoint in found] == [200 * MIB]
    assert not detector.active
