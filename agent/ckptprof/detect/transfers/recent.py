"""What processes moved of late, file by file: traced or polled, the same words for both."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from ckptprof.detect.transfers.polled_streams import PolledStreams
from ckptprof.detect.transfers.streams import Stream
from ckptprof.detect.transfers.traced_streams import TracedStreams
from ckptprof.detect.world.keys import FileKey, ProcessKey

MAX_MOVES = 4096


class RecentTransfer(NamedTuple):
    """What one process did to one file in one direction. Times are CLOCK_MONOTONIC, give or take a look if polled."""

    file: FileKey
    path: str
    start_ns: int
    end_ns: int
    bytes: int | None  # None: only the file's size is known
    size: int


class RecentTransfers:
    """Remembers polled streams after they were judged; the trace keeps its own."""

    def __init__(self, polled: PolledStreams, traced: TracedStreams) -> None:
        """Start with nothing."""
        self._polled = polled
        self._traced = traced
        self._done: deque[Stream] = deque()
        self._by_process: dict[ProcessKey, deque[Stream]] = {}

    def note(self, streams: list[Stream]) -> None:
        """Take note of streams that are over."""
        for stream in streams:
            if stream.trace is None:
                self._done.append(stream)
                self._by_process.setdefault(stream.process, deque()).append(stream)
        while len(self._done) > MAX_MOVES:
            self._forget_oldest()

    def of(self, process: ProcessKey, start_ns: int, end_ns: int, *, writes: bool) -> list[RecentTransfer]:
        """Return what a process moved in one direction and in part between two times.

        Of a file whose operations the trace saw, its times are taken: looks only know when it was found closed.
        """
        found: list[RecentTransfer] = []
        looked_at = [*self._by_process.get(process, ()), *self._polled.open_of(process)]
        exact: set[FileKey] = set()
        for stream in self._traced.moved_by(process):
            near = stream.first_ns <= end_ns and stream.last_ns >= start_ns
            if stream.writes != writes or not (near or looked_at) or stream.trace is None or not stream.trace.moved:
                continue
            exact.add(stream.file)
            totals = stream.trace.totals
            if near and totals.first_ns <= end_ns and totals.last_ns >= start_ns:
                found.append(
                    RecentTransfer(stream.file, stream.path, totals.first_ns, totals.last_ns, totals.bytes, stream.size)
                )
        polled: dict[FileKey, RecentTransfer] = {}
        for stream in looked_at:
            if stream.writes == writes and stream.file not in exact:
                move = _polled(stream)
                if move.start_ns <= end_ns and move.end_ns >= start_ns:
                    polled[stream.file] = move
        return [*polled.values(), *found]

    def forget_before(self, at_ns: int) -> None:
        """Drop what was over before `at_ns`."""
        while self._done and self._done[0].last_ns < at_ns:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        process = self._done.popleft().process
        own = self._by_process[process]
        own.popleft()
        if not own:
            del self._by_process[process]


def _polled(stream: Stream) -> RecentTransfer:
    moved = stream.advanced_bytes if stream.looks else None
    size = stream.fact.size if stream.fact is not None and stream.writes else stream.size
    return RecentTransfer(
        stream.file,
        stream.path,
        stream.may_begin_ns,
        stream.may_end_ns,
        moved or None,
        size,
    )
