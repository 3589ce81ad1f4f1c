"""From frames to windows: every change is there once, pauses are kept as pauses, memory is bounded."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from ckptprof.store.timeline import WINDOW_NS, TimelineBuilder, Window
from ckptprof_collectors.samples import (
    DiskSample,
    EntityGone,
    Frame,
    MemorySample,
    NicSample,
    ProcessExit,
    ProcessIo,
    ProcessStat,
    RdmaSample,
    Sample,
)

_SECOND_NS = 1_000_000_000
_START_NS = 472_222 * 3600 * _SECOND_NS
_COLLECTORS = ("disks", "nics", "rdma", "memory", "processes")


def _frame(second: float, *samples: Sample) -> Frame:
    at_ns = _START_NS + int(second * _SECOND_NS)
    return Frame(at_ns=at_ns, wall_ns=at_ns, read=_COLLECTORS, samples=samples)


def _disk(value: int, device: str = "vda") -> DiskSample:
    return DiskSample(device, *[value] * 11)


def _points(windows: list[Window], entity: str, field: str) -> list[tuple[float, int | None]]:
    return [
        ((time - _START_NS) / _SECOND_NS, value)
        for window in windows
        if window.entity == entity
        for time, value in zip(window.times_ns, window.columns[window.fields.index(field)], strict=True)
    ]


def test_a_pause_is_kept_as_a_pause() -> None:
    """The last moment of the old value is stored before a change: its rate is that of one tick, not of the pause."""
    builder = TimelineBuilder()
    for second in range(30):
        builder.feed(_frame(second, *([_disk(1)] if second == 0 else [_disk(7)] if second == 20 else [])))

    assert _points(builder.consume(before_wall_ns=None), "disk:vda", "read_ios") == [(0, 1), (19, 1), (20, 7), (29, 7)]


def test_complete_windows_only_until_asked_for_everything() -> None:
    """The open minute stays until it is over, or until everything is asked for."""
    builder = TimelineBuilder()
    for second in range(130):
        builder.feed(_frame(second, _disk(second)))
    complete = builder.consume(before_wall_ns=_START_NS + 129 * _SECOND_NS)
    rest = builder.consume(before_wall_ns=None)

    assert [window.start_ns - _START_NS for window in complete] == [0, WINDOW_NS]
    assert [window.start_ns - _START_NS for window in rest] == [2 * WINDOW_NS]
    assert _points(complete + rest, "disk:vda", "io_ms") == [(second, second) for second in range(130)]
    assert builder.consume(before_wall_ns=None) == []


def test_an_hour_always_says_that_it_was_watched() -> None:
    """An idle device has a point in each hour, so that idle and unwatched differ; an idle process has none."""
    builder = TimelineBuilder()
    builder.feed(_frame(0, _disk(5), ProcessIo(1, 2, 3, 4, 5, 6, 7, 8, 9)))
    for second in range(60, 3 * 3600, 60):
        builder.feed(_frame(second))
    windows = builder.consume(before_wall_ns=None)

    assert _points(windows, "disk:vda", "read_ios") == [(0, 5), (3600, 5), (7200, 5), (3 * 3600 - 60, 5)]
    assert {window.entity for window in windows} == {"disk:vda"}


def test_all_kinds_of_entities_have_their_names() -> None:
    """Disks, NICs, ports, memory and processes become entities; None stays None."""
    builder = TimelineBuilder()
    memory = MemorySample(*[None] * len(MemorySample.__struct_fields__))
    for second in range(2):
        io = ProcessIo(7, 99, second, 2, 3, 4, 5, 6, 7)
        stat = ProcessStat(7, 99, "R", 10 + second, 2, 3, 4, 5, None, None)
        nic = NicSample("eth0", second, *[0] * 7)
        builder.feed(_frame(second, nic, RdmaSample("mlx5_0/1", 1, None, 3, 4, 5), memory, io, stat))
    windows = {window.entity: window for window in builder.consume(before_wall_ns=None)}

    assert set(windows) == {"nic:eth0", "rdma:mlx5_0/1", "memory", "process:7:99"}
    assert list(windows["rdma:mlx5_0/1"].columns[1]) == [None, None]
    process = windows["process:7:99"]
    columns = dict(zip(process.fields, map(list, process.columns), strict=True))
    assert (columns["read_chars"], columns["user_ticks"], columns["rss_bytes"]) == ([0, 1], [10, 11], [None, None])


def test_the_two_samples_of_a_process_need_not_come_together() -> None:
    """Where only one of them changed, the other keeps what it was; before it was seen it is None."""
    builder = TimelineBuilder()
    builder.feed(_frame(0, ProcessIo(7, 99, 10, *[0] * 6)))
    builder.feed(_frame(1, ProcessStat(7, 99, "R", 100, *[0] * 4, 0, 0)))
    builder.feed(_frame(2, ProcessIo(7, 99, 12, *[0] * 6)))
    builder.feed(_frame(3, ProcessStat(7, 99, "R", 103, *[0] * 4, 0, 0)))
    builder.feed(_frame(61, ProcessStat(7, 99, "R", 161, *[0] * 4, 0, 0)))
    windows = builder.consume(before_wall_ns=None)

    assert _points(windows, "process:7:99", "read_chars") == [(0, 10), (1, 10), (2, 12), (3, 12), (61, 12)]
    assert _points(windows, "process:7:99", "user_ticks") == [(0, None), (1, 100), (2, 100), (3, 103), (61, 161)]


def test_what_is_gone_is_forgotten() -> None:
    """A device or process that left has no more points, and its successor starts anew."""
    builder = TimelineBuilder()
    builder.feed(_frame(0, _disk(1), _disk(1, "sdb"), ProcessIo(7, 99, *[0] * 7)))
    builder.feed(_frame(1, ProcessIo(7, 99, *[1] * 7)))
    builder.feed(_frame(2, EntityGone("device", "sdb"), EntityGone("mount", "12"), ProcessExit(7, 99)))
    builder.consume(before_wall_ns=None)
    builder.feed(_frame(4000, _disk(2)))

    assert {window.entity for window in builder.consume(before_wall_ns=None)} == {"disk:vda"}


def test_a_clock_set_back_leaves_sorted_windows() -> None:
    """Each window's times rise, whatever the wall clock does."""
    builder = TimelineBuilder()
    for second in (100, 101, 40, 41, 42, 100, 7000, 43):
        builder.feed(_frame(second, _disk(second)))
    windows = builder.consume(before_wall_ns=None)

    assert all(list(window.times_ns) == sorted(set(window.times_ns)) for window in windows)
    assert {value for _, value in _points(windows, "disk:vda", "io_ms")} == {40, 41, 42, 43, 100, 101, 7000}


def test_memory_is_bounded_and_what_is_dropped_is_counted() -> None:
    """Past its bounds the builder drops and counts; after a take it goes on."""
    builder = TimelineBuilder(max_points=10, max_entities=3)
    for tick in range(40):
        builder.feed(_frame(tick / 10, _disk(tick)))
    first = builder.consume(before_wall_ns=None)
    builder.feed(_frame(5, *(_disk(50, f"sd{index}") for index in range(9))))

    assert len(_points(first, "disk:vda", "io_ms")) == 10
    assert builder.dropped == 30 + 7
    assert _points(builder.consume(before_wall_ns=None), "disk:sd1", "io_ms") == [(5, 50)]


@given(
    st.lists(
        st.tuples(st.integers(1, 40), st.one_of(st.none(), st.integers(0, (1 << 64) - 1))), min_size=1, max_size=60
    )
)
def test_steps_say_what_a_point_per_tick_would_say(ticks: list[tuple[int, int | None]]) -> None:
    """At each frame the last point at or before it has the value that the device had."""
    builder = TimelineBuilder()
    second, truth, value = 0, [], 3
    builder.feed(_frame(0, _disk(value)))
    windows = []
    for pause, change in ticks:
        second += pause
        value = value if change is None else change
        builder.feed(_frame(second, *([] if change is None else [_disk(value)])))
        truth.append((second, value))
        windows += builder.consume(before_wall_ns=_START_NS + second * _SECOND_NS)
    points = _points(windows + builder.consume(before_wall_ns=None), "disk:vda", "write_ios")
    times = [time for time, _ in points]

    assert times == sorted(times)
    assert [value for _, value in truth] == [points[bisect_right(times, second) - 1][1] for second, _ in truth]


def test_a_value_that_no_counter_holds_does_no_harm(disk_frame: Callable[..., Frame]) -> None:
    """Numbers beyond 64 bits and below zero pass through."""
    builder = TimelineBuilder()
    for second, value in enumerate((-1, 1 << 80)):
        builder.feed(disk_frame(_START_NS + second * _SECOND_NS, value))

    assert [list(column) for column in builder.consume(before_wall_ns=None)[0].columns[:2]] == [[-1, 1 << 80]] * 2
