"""From frames to windows of raw counters: pure, bounded in memory.

A window has one entity's counters over 60 s of wall clock. Frames contain changes only, so a window's points are the
changes, and before each change after a pause the last time of the old value. Read as steps (or, for a rate, as straight
lines between points) this is equivalent to one point per tick. In every hour each live device has at least one point,
to distinguish "unchanged" from "not recorded"; a process has points only after its first change.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from ckptprof.store.series.blocks import ColumnValues
from ckptprof_collectors.counters import CounterGroup
from ckptprof_collectors.samples import COUNTED, EntityGone, Frame, ProcessExit, ProcessIo, ProcessStat

WINDOW_NS = 60_000_000_000
HOUR_NS = 3600_000_000_000

_POINTS_PER_FOLD = 32  # pending points are samples, which need five times the memory
_Values = tuple["int | None", ...]


class Window(msgspec.Struct, frozen=True):
    """The points of one entity in one minute: cumulative counters as the kernel gave them."""

    entity: str  # disk:vda, nic:eth0, rdma:mlx5_0/1, memory, process:PID:START
    start_ns: int  # wall clock, a multiple of WINDOW_NS
    fields: tuple[str, ...]
    times_ns: Sequence[int]  # wall clock; the first may be before start_ns: the last time of the old values
    columns: tuple[ColumnValues, ...]


class _SampleSource(msgspec.Struct, frozen=True):
    """How the samples of one type become points."""

    fields: tuple[str, ...]
    values: Callable[[Any], _Values]
    name: Callable[[Any], str | tuple[int, int]]
    prefix: str  # of the names in the timeline
    collector: str | None  # reads all entities at each read, so that no sample means "unchanged"; None for processes


def _sample_source(kind: Any) -> _SampleSource:
    counted: CounterGroup = kind.counted
    declared = {column.field for column in counted.columns}
    fields = tuple(field for field in kind.__struct_fields__ if field in declared)
    values: Callable[[Any], Any] = attrgetter(*fields)
    if len(fields) == 1:
        values = lambda sample: (getattr(sample, fields[0]),)  # noqa: E731 # as a tuple
    if not counted.name:
        return _SampleSource(fields, values, lambda _: counted.entity, "", counted.collector)
    return _SampleSource(fields, values, attrgetter(*counted.name), f"{counted.entity}:", counted.collector)


_SOURCES: dict[type, _SampleSource] = {kind: _sample_source(kind) for kind in COUNTED}
_KIND_BY_GONE_ENTITY: dict[str, Any] = {kind.counted.gone_entity: kind for kind in COUNTED if kind.counted.gone_entity}


class _EntityTrack:
    """The open window of one entity, or of one of the two kinds of sample of a process."""

    __slots__ = ("before", "columns", "newest", "newest_ns", "pending", "times", "written_ns")

    def __init__(self, at_ns: int, sample: object) -> None:
        self.newest_ns = at_ns  # when `last` was read
        self.newest = sample
        self.before: object | None = None  # the values at the start of the open window
        self.written_ns = -1  # time of the newest point
        self.pending: list[tuple[int, object]] = []
        self.times = array("q")
        self.columns: list[ColumnValues] = []

    def append(self, at_ns: int, sample: object) -> None:
        """Add a sample, not yet folded into columns."""
        self.pending.append((at_ns, sample))
        self.written_ns = at_ns

    def fold(self, source: _SampleSource) -> None:
        """Move the pending points into columns of 8 bytes a value: a sample needs ten times that."""
        if not self.pending:
            return
        self.times.extend([at_ns for at_ns, _ in self.pending])
        fresh = list(map(_column, zip(*[source.values(sample) for _, sample in self.pending], strict=True)))
        self.pending.clear()
        self.columns = list(map(_concatenate, self.columns, fresh)) if self.columns else fresh

    def start_window(self) -> None:
        """Open the next window."""
        self.times, self.columns = array("q"), []
        self.before = self.newest


def _column(values: Sequence[Any]) -> ColumnValues:
    try:
        return array("Q", values)
    except (TypeError, OverflowError):  # a missing value, or one beyond 64 bits
        return list(values)


def _concatenate(first: ColumnValues, second: ColumnValues) -> ColumnValues:
    if isinstance(first, array) and isinstance(second, array):
        return first + second
    return [*first, *second]


class TimelineBuilder:
    """Turns frames, in the order in which they were recorded, into windows."""

    def __init__(self, *, max_points: int = 200_000, max_entities: int = 20_000) -> None:
        """Limits of points (about 150 bytes each) and entities; points beyond them are dropped and counted."""
        self.dropped = 0  # points
        self._max_points = max_points
        self._max_entities = max_entities
        self._points = 0
        self._tracks: dict[type, dict[Any, _EntityTrack]] = {kind: {} for kind in _SOURCES}
        self._ended_entities: list[tuple[type, Any]] = []
        self._read_ns: dict[type, int] = {}  # per type of device: the newest frame in which all were read
        self._window = -1
        self._frame_ns = -1
        self._ready: list[Window] = []

    def feed(self, frame: Frame) -> None:
        """Add a frame."""
        at_ns = frame.wall_ns
        window = at_ns // WINDOW_NS
        if window != self._window or at_ns < self._frame_ns:  # the clock was set back: times rise within a window
            self._seal()
            self._window = window
        self._frame_ns = at_ns
        for sample in frame.samples:
            kind = type(sample)
            if kind in _SOURCES:
                self._add(kind, sample, at_ns)
            elif isinstance(sample, ProcessExit):
                name = (sample.pid, sample.start_ticks)
                self._ended_entities += ((ProcessIo, name), (ProcessStat, name))
            elif isinstance(sample, EntityGone) and sample.entity in _KIND_BY_GONE_ENTITY:
                self._ended_entities.append((_KIND_BY_GONE_ENTITY[sample.entity], sample.name))
        hour_ns = at_ns - at_ns % HOUR_NS
        for kind, source in _SOURCES.items():
            if source.collector in frame.read:
                before_ns = self._read_ns.get(kind, -1)
                self._read_ns[kind] = at_ns
                if before_ns < hour_ns:
                    self._reaffirm(kind, at_ns, hour_ns)

    def consume(self, *, before_wall_ns: int | None) -> list[Window]:
        """Consume the complete windows; None: all, closed at the last frame."""
        if before_wall_ns is None:
            for kind, read_ns in self._read_ns.items():
                self._reaffirm(kind, read_ns, read_ns)
            self._seal()
        elif (self._window + 1) * WINDOW_NS <= before_wall_ns:
            self._seal()
        ready, self._ready = self._ready, []
        if ready:
            tracks = (track for tracks in self._tracks.values() for track in tracks.values())
            self._points = sum(len(track.times) + len(track.pending) for track in tracks)
        return ready

    def _add(self, kind: type, sample: object, at_ns: int) -> None:
        source = _SOURCES[kind]
        name = source.name(sample)
        tracks = self._tracks[kind]
        track = tracks.get(name)
        if track is None:
            if len(tracks) >= self._max_entities:
                self.dropped += 1
                return
            track = tracks[name] = _EntityTrack(at_ns, sample)
            if source.collector is None:
                return  # a process without further changes is not worth a row
        elif self._points >= self._max_points:
            self.dropped += 1
        else:
            unchanged_ns = max(self._read_ns.get(kind, -1), track.newest_ns)
            if track.written_ns < unchanged_ns < at_ns:
                track.append(unchanged_ns, track.newest)
                self._points += 1
        if self._points < self._max_points:
            track.append(at_ns, sample)
            self._points += 1
            if len(track.pending) >= _POINTS_PER_FOLD:
                track.fold(source)
        track.newest, track.newest_ns = sample, at_ns

    def _reaffirm(self, kind: type, at_ns: int, since_ns: int) -> None:
        """Give each live device a point, at the frame that read it last, unless it has one since."""
        for track in self._tracks[kind].values():
            if track.written_ns < since_ns and self._points < self._max_points:
                track.append(at_ns, track.newest)
                self._points += 1

    def _seal(self) -> None:
        """Convert the points of the open window into windows, and forget entities that are gone."""
        start_ns = self._window * WINDOW_NS
        for kind, tracks in self._tracks.items():
            source = _SOURCES[kind]
            for track in tracks.values():
                track.fold(source)
            if source.collector is not None:
                self._ready += [
                    Window(f"{source.prefix}{name}", start_ns, source.fields, track.times, tuple(track.columns))
                    for name, track in tracks.items()
                    if track.times
                ]
        self._ready += self._process_windows(start_ns)
        for tracks in self._tracks.values():
            for track in tracks.values():
                track.start_window()
        for kind, name in self._ended_entities:
            self._tracks[kind].pop(name, None)
        self._ended_entities.clear()

    def _process_windows(self, start_ns: int) -> Iterator[Window]:
        io, stat = self._tracks[ProcessIo], self._tracks[ProcessStat]
        names = [name for name, track in io.items() if track.times]
        names += [name for name, track in stat.items() if track.times and not (name in io and io[name].times)]
        fields = _SOURCES[ProcessIo].fields + _SOURCES[ProcessStat].fields
        for pid, start_ticks in names:
            first, second = io.get((pid, start_ticks)), stat.get((pid, start_ticks))
            times: Sequence[int] = first.times if first else ()
            if second and second.times != times:
                times = array("q", sorted({*times, *second.times}))
            columns = (*_align(first, _SOURCES[ProcessIo], times), *_align(second, _SOURCES[ProcessStat], times))
            yield Window(f"process:{pid}:{start_ticks}", start_ns, fields, times, columns)


def _align(track: _EntityTrack | None, source: _SampleSource, times: Sequence[int]) -> Iterator[ColumnValues]:
    """Yield the columns of a track at `times`, which include all its own times: between points the last value holds."""
    if track is None:
        yield from [[None] * len(times)] * len(source.fields)
        return
    own = track.times
    if own == times:
        yield from track.columns
        return
    before: _Values = (None,) * len(source.fields) if track.before is None else source.values(track.before)
    at = [bisect_right(own, time) for time in times]
    columns = track.columns or [()] * len(before)
    for value_before, column in zip(before, columns, strict=True):
        values = (value_before, *column)
        yield [values[index] for index in at]
