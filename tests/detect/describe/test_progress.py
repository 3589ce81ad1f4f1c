"""Where in its file each stream was, of whole checkpoints: at both levels, thinned, and of the slowest and largest."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from tests.detect.stage import MIB, SECOND_NS, Stage
from tests.detect.tracer import activity

from ckptprof.detect.describe.stream_progress import MAX_POINTS, MAX_STREAMS
from ckptprof.detect.transfers.model.thinning import thin_points
from ckptprof.model import Checkpoint, Progress, Succession
from ckptprof_collectors.samples import FileActivity

TICK_S = 0.1


def session(samples: int, at: Any, pause_s: float = 0.0, **fields: Any) -> list[tuple[float, FileActivity]]:
    """Return the samples of a session, one a tick, with a pause in the middle.

    `at(n)` is by then, in MiB: moved, end of the last operation, highest offset, moved forward.
    """
    made = []
    for number in range(1, samples + 1):
        moved, end, high, forward = at(number)
        end_s = 2 + number * TICK_S + (pause_s if number > samples // 2 else 0.0)
        one = activity(
            end_s=end_s, moved=moved * MIB, closed=number == samples, end_offset=end * MIB, high_offset=high * MIB,
            sequential_operations=forward, sequential_bytes=forward * MIB, **fields,
        )  # fmt: skip
        made.append((end_s + 0.01, one))
    return made


def traced(*sessions: list[tuple[float, FileActivity]], pids: int = 1) -> Checkpoint:
    """Return the save that a trace told of these."""
    stage = Stage(trace=True, poll=False)
    for rank in range(pids):
        environment = {"RANK": str(rank), "WORLD_SIZE": str(pids), "TORCHELASTIC_RUN_ID": "job"}
        stage.process(100 + rank, environment=environment)
    stage.extra = sorted((one for samples in sessions for one in samples), key=lambda one: one[0])
    (save,) = stage.play(12)
    return save


@pytest.mark.parametrize(
    ("at", "order", "last"),
    [
        (lambda n: (10 * n, 10 * n, 10 * n, 10 * n), Succession.NEXT, (190, 200)),
        (lambda n: (10 * n, 40 * n, 40 * n, 10 * n), Succession.ON, (760, 800)),
        (lambda n: (10 * n, 70 * n % 200, 200, 5 * n), Succession.BACK, (0, 200)),
    ],
)
def test_each_sample_of_a_trace_is_a_stretch(at: Any, order: Succession, last: tuple[int, int]) -> None:
    """With its time, its bytes and its offsets, so that the three orders differ."""
    (stream,) = traced(session(20, at)).streams
    points = stream.progress

    assert len(points) == 20
    assert [point.order for point in points[1:]] == [order] * 19
    assert (points[-1].low_offset, points[-1].high_offset) == (last[0] * MIB, last[1] * MIB)
    assert sum(point.bytes or 0 for point in points) == stream.bytes == 200 * MIB
    assert all(one.end_ns <= other.start_ns for one, other in pairwise(points))
    assert (points[0].start_ns, points[-1].end_ns) == (stream.start_ns, stream.end_ns)


def test_long_ones_are_thinned_and_a_pause_stays() -> None:
    """Neighbours are joined where least is lost: no byte, and not the time in which nothing was written."""
    save = traced(session(60, lambda n: (n, n, n, n), pause_s=2.0))
    (stream,) = save.streams
    longest_ns, paused_ns = max((other.start_ns - one.end_ns, one.end_ns) for one, other in pairwise(stream.progress))

    assert len(stream.progress) == MAX_POINTS
    assert sum(point.bytes or 0 for point in stream.progress) == stream.bytes
    assert longest_ns > 1.5 * SECOND_NS
    assert paused_ns - save.start_ns == pytest.approx(3 * SECOND_NS, abs=SECOND_NS // 100)


def looks(offsets: list[int]) -> list[Progress]:
    """Return a look a second."""
    return [Progress(at * SECOND_NS, at * SECOND_NS, None, offset, offset) for at, offset in enumerate(offsets)]


def stretch(start: int, low: int, high: int, tid: int = 1) -> Progress:
    """Return a stretch of a second."""
    return Progress(start * SECOND_NS, (start + 1) * SECOND_NS, high - low, low, high, Succession.NEXT, tid)


def test_of_looks_those_stay_that_shape_the_line() -> None:
    """The first, the last, and each edge of a step; none is made up."""
    offsets = [0] * 100 + [1000] * 100 + [n * 10 for n in range(100, 200)]
    kept = thin_points(looks(offsets), 8)

    assert set(kept) <= set(looks(offsets))
    assert len(kept) == 8
    assert [kept[0].start_ns, kept[-1].start_ns] == [0, 299 * SECOND_NS]
    assert {99, 100, 200} <= {point.start_ns // SECOND_NS for point in kept}


def test_stretches_are_joined_where_nothing_lies_between() -> None:
    """A pause and a jump stay, as long as there is room for them."""
    before = [stretch(at, at * 10, at * 10 + 10) for at in range(50)]
    after = [stretch(at + 100, at * 10 + 5000, at * 10 + 5010) for at in range(50, 100)]
    kept = thin_points([*before, *after], 6)
    gaps = [(one.end_ns // SECOND_NS, other.start_ns // SECOND_NS) for one, other in pairwise(kept)]

    assert len(kept) == 6
    assert (50, 150) in gaps
    assert all(point.order is Succession.NEXT for point in kept)
    assert sum(point.bytes or 0 for point in kept) == 1000
    assert (kept[0].low_offset, kept[-1].high_offset) == (0, 6000)


def test_threads_are_kept_apart_as_long_as_there_is_room() -> None:
    """Each fills its own part of the file; only of more threads than points the order is lost."""
    crowd = [stretch(at, tid * 1000 + at * 10, tid * 1000 + at * 10 + 10, tid) for tid in range(8) for at in range(9)]
    apart, together = thin_points(crowd, 8), thin_points(crowd, 4)

    assert sorted((point.tid, point.bytes) for point in apart) == [(tid, 90) for tid in range(8)]
    assert {point.order for point in apart} == {Succession.NEXT}
    assert {(point.order, point.tid is None) for point in together} == {(Succession.NEXT, False), (None, True)}
    assert sum(point.bytes or 0 for point in together) == 8 * 90


def test_halves_of_different_levels_share_the_room() -> None:
    """Looks stay looks."""
    kept = thin_points([*looks(list(range(40))), *(stretch(at, at, at + 1) for at in range(40, 80))], 10)

    assert [point.bytes is None for point in kept] == [True] * 5 + [False] * 5


def test_polled_positions_are_points() -> None:
    """Where its process was at each look, none beyond the save's edges, and no bytes."""
    stage = Stage()
    stage.write(stage.process(), "/ckpt/step_1.pt", 2.0, 4.0, 400 * MIB)
    (save,) = stage.play(11)
    (stream,) = save.streams

    assert 8 < len(stream.progress) <= MAX_POINTS
    for point in stream.progress:
        truth = 400 * MIB * (point.start_ns - stage.stamp(2.0)) / (4 * SECOND_NS)
        assert (point.end_ns, point.bytes, point.order) == (point.start_ns, None, None)
        assert point.low_offset == point.high_offset == pytest.approx(truth, abs=2 * MIB)
        assert save.start_ns <= point.start_ns <= save.end_ns


def test_what_leaves_its_position_alone_has_no_points() -> None:
    """Of who writes at offsets of its own (pwrite) polling does not see where: 0 would be a lie."""
    stage = Stage()
    stage.write(stage.process(), "/ckpt/step_1.pt", 2.0, 4.0, 400 * MIB, layout="pwrite")
    (save,) = stage.play(11)

    assert [stream.progress for stream in save.streams] == [()]
    assert save.progress_left_out == 0


def test_of_many_streams_those_of_the_slowest_ranks_and_the_largest_files_are_kept() -> None:
    """Of each process the largest first; how many are left out is counted."""
    sessions = []
    for rank in range(20):
        for number, size in enumerate((40, 4)):
            end_s = 3 + rank * 0.05
            one = activity(pid=100 + rank, path=f"/c/step-1/rank_{rank}_{number}.pt", inode=10 * rank + number + 1,
                           end_s=end_s, moved=size * MIB)  # fmt: skip
            sessions.append([(end_s + 0.01, one)])
    save = traced(*sessions, pids=20)
    kept = {stream.path for stream in save.streams if stream.progress}

    assert len(save.streams) == 40
    assert kept == {f"/c/step-1/rank_{rank}_0.pt" for rank in range(20 - MAX_STREAMS, 20)}
    assert save.progress_left_out == 40 - MAX_STREAMS


def test_what_short_streams_do_not_need_is_the_others() -> None:
    """128 points in all: 2 of a short one, and as many of each of the five long ones as that leaves."""
    files = [
        session(samples, lambda n: (n, n, n, n), path=f"/c/step-1/part_{number}.pt", inode=number + 1)
        for number, samples in enumerate((2, 40, 40, 40, 40, 40))
    ]
    numbers = [len(stream.progress) for stream in traced(*files).streams]

    assert sorted(numbers) == [2, 25, 25, 25, 25, 26]
