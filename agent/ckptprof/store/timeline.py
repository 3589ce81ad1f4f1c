"""From frames to windows of raw counters: pure, bounded in memory.

A window holds what one entity's counters were in 60 s of wall clock. Frames carry only what changed, so a window's
points are the changes, and before each change after a pause the last moment at which the old value still held. Read as
steps (or, for a rate, as straight lines between points) this says what a point per tick would say. In every hour each
live device has at least one point, so that "nothing changed" and "nobody looked" are told apart; a process has points
only once it moved.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from ckptprof.store.series.blocks import Column
from ckptprof_collectors.counted import Counted
from ckptprof_collectors.samples import COUNTED, Frame, Gone, ProcessExit, ProcessIo, ProcessStat

WINDOW_NS = 60_000_000_000
HOUR_NS = 3600_000_000_000

_FOLD_POINTS = 32  # of more each waits as a sample, which takes five times the room
_Values = tuple["int | None", ...]


class Window(msgspec.Struct, frozen=True):
    """The points of one entity in one minute: cumulative counters as the kernel gave them."""

    entity: str  # disk:vda, nic:eth0, rdma:mlx5_0/1, memory, process:PID:START
    start_ns: int  # wall clock, a multiple of WINDOW_NS
    fields: tuple[str, ...]
    times_ns: Sequence[int]  # wall clock; the first may lie before start_ns: the last moment of the old values
    columns: tuple[Column, ...]


class _Source(msgspec.Struct, frozen=True):
    """How the samples of one type become points."""

    fields: tuple[str, ...]
    values: Callable[[Any], _Values]
    name: Callable[[Any], str | tuple[int, int]]
    prefix: str  # of the names in the timeline
    collector: str | None  # reads every entity each time, so that silence means "unchanged"; None for processes


def _source(kind: Any) -> _Source:
    counted: Counted = kind.counted
    declared = {column.field for column in counted.columns}
    fields = tuple(field for field in kind.__struct_fields__ if field in declared)
    values: Callable[[Any], Any] = attrgetter(*fields)
    if len(fields) == 1:
        values = lambda sample: (getattr(sample, fields[0]),)  # noqa: E731 # as a tuple
    if not counted.name:
        return _Source(fields, values, lambda _: counted.entity, "", counted.collector)
    return _Source(fields, values, attrgetter(*counted.name), f"{counted.entity}:", counted.collector)


_SOURCES: dict[type, _Source] = {kind: _source(kind) for kind in COUNTED}
_GONE: dict[str, Any] = {kind.counted.gone: kind for kind in COUNTED if kind.counted.gone}


class _Track:
    """The open window of one entity, or of one of the two kinds of sample of a process."""

    __slots__ = ("before", "columns", "last", "last_ns", "pending", "times", "written_ns")

    def __init__(self, at_ns: int, sample: object) -> None:
        self.last_ns = at_ns  # when `last` was read
        self.last = sample
        self.before: object | None = None  # what held when the open window began
        self.written_ns = -1  # time of the newest point
        self.pending: list[tuple[int, object]] = []
        self.times = array("q")
        self.columns: list[Column] = []

    def append(self, at_ns: int, sample: object) -> None:
        """Add a point."""
        self.pending.append((at_ns, sample))
        self.written_ns = at_ns

    def fold(self, source: _Source) -> None:
        """Move the pending points into columns of 8 bytes a value: a sample takes ten times that."""
        if not self.pending:
            return
        self.times.extend([at_ns for at_ns, _ in self.pending])
        fresh = list(map(_column, zip(*[source.values(sample) for _, sample in self.pending], strict=True)))
        self.pending.clear()
        self.columns = list(map(_joined, self.columns, fresh)) if self.columns else fresh

    def begin(self) -> None:
        """Open the next window."""
        self.times, self.columns = array("q"), []
        self.before = self.last


def _column(values: Sequence[Any]) -> Column:
    try:
        return array("Q", values)
    except (TypeError, OverflowError):  # a value that was not seen, or one that no counter of 64 bits holds
        return list(values)


def _joined(first: Column, second: Column) -> Column:
    if isinstance(first, array) and isinstance(second, array):
        return first + second
    return [*first, *second]


class TimelineBuilder:
    """Turns frames, in the order in which they were recorded, into windows."""

    def __init__(self, *, max_points: int = 200_000, max_entities: int = 20_000) -> None:
        """Hold at most so many points (about 150 bytes each) and entities; what is over is dropped and counted."""
        self.dropped = 0  # points
        self._max_points = max_points
        self._max_entities = max_entities
        self._points = 0
        self._tracks: dict[type, dict[Any, _Track]] = {kind: {} for kind in _SOURCES}
        self._gone: list[tuple[type, Any]] = []
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
                self._gone += ((ProcessIo, name), (ProcessStat, name))
            elif isinstance(sample, Gone) and sample.entity in _GONE:
                self._gone.append((_GONE[sample.entity], sample.name))
        hour_ns = at_ns - at_ns % HOUR_NS
        for kind, source in _SOURCES.items():
            if source.collector in frame.read:
                before_ns = self._read_ns.get(kind, -1)
                self._read_ns[kind] = at_ns
                if before_ns < hour_ns:
                    self._reaffirm(kind, at_ns, hour_ns)

    def take(self, *, before_wall_ns: int | None) -> list[Window]:
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
            track = tracks[name] = _Track(at_ns, sample)
            if source.collector is None:
                return  # a process that never moves again is not worth a row
        elif self._points >= self._max_points:
            self.dropped += 1
        else:
            held_ns = max(self._read_ns.get(kind, -1), track.last_ns)
            if track.written_ns < held_ns < at_ns:
                track.append(held_ns, track.last)
                self._points += 1
        if self._points < self._max_points:
            track.append(at_ns, sample)
            self._points += 1
            if len(track.pending) >= _FOLD_POINTS:
                track.fold(source)
        track.last, track.last_ns = sample, at_ns

    def _reaffirm(self, kind: type, at_ns: int, since_ns: int) -> None:
        """Give each live device a point, at the frame that read it last, unless it has one since."""
        for track in self._tracks[kind].values():
            if track.written_ns < since_ns and self._points < self._max_points:
                track.append(at_ns, track.last)
                self._points += 1

    def _seal(self) -> None:
        """Turn the points of the open window into windows, and forget what is gone."""
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
                track.begin()
        for kind, name in self._gone:
            self._tracks[kind].pop(name, None)
        self._gone.clear()

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
            columns = (*_spread(first, _SOURCES[ProcessIo], times), *_spread(second, _SOURCES[ProcessStat], times))
            yield Window(f"process:{pid}:{start_ticks}", start_ns, fields, times, columns)


def _spread(track: _Track | None, source: _Source, times: Sequence[int]) -> Iterator[Column]:
    """Yield the columns of a track at `times`, which hold all of its own: between its points the last value stays."""
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
    for held, column in zip(before, columns, strict=True):
        values = (held, *column)
        yield [values[index] for index in at]
