"""When each thread created, emptied, closed, renamed, deleted and synced files, and how long the calls took."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from math import isnan, nan
from typing import NamedTuple

from ckptprof.detect.tolerances import NEARBY_NS
from ckptprof.detect.world.bounded import Bounded
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.spans import Span, merged
from ckptprof_collectors.samples import FileLifeEvent

KINDS = ("created", "emptied", "closed-written", "renamed", "unlinked", "synced")
SYNCED_ALL = "synced-all"  # of those that synced: syncfs(2), sync(2)
_NAMING_KINDS = ("renamed", "unlinked", "synced")
MAX_EVENTS = 327_680  # 16 bytes each


class CallTotals(NamedTuple):
    """Calls of one kind by one thread: number, total time (None: not timed), first start and last end."""

    number: int
    call_ns: int | None
    first_ns: int  # CLOCK_MONOTONIC, start of the first call
    last_ns: int  # end of the last call


@dataclass(slots=True)
class _CallTimes:
    """Calls of one kind by one process, in columns of equal length."""

    ends_ns: array[int] = field(default_factory=lambda: array("q"))  # CLOCK_MONOTONIC, ascending
    call_ns: array[float] = field(default_factory=lambda: array("f"))  # nan: not timed
    tids: array[int] = field(default_factory=lambda: array("i"))

    def add(self, event: FileLifeEvent) -> None:
        """Insert a call in order; events of other CPUs may arrive late."""
        place = bisect_right(self.ends_ns, event.at_ns)
        self.ends_ns.insert(place, event.at_ns)
        self.call_ns.insert(place, nan if event.duration_ns is None else float(event.duration_ns))
        self.tids.insert(place, event.tid)

    def started_ns(self, place: int) -> int:
        spent_ns = self.call_ns[place]
        return self.ends_ns[place] - (0 if isnan(spent_ns) else int(spent_ns))

    def drop(self, number: int) -> None:
        self.ends_ns, self.call_ns, self.tids = self.ends_ns[number:], self.call_ns[number:], self.tids[number:]

    def between(self, start_ns: int, end_ns: int) -> tuple[int, int]:
        return bisect_left(self.ends_ns, start_ns), bisect_right(self.ends_ns, end_ns)

    def by_thread(self, start_ns: int, end_ns: int) -> dict[int, CallTotals]:
        """Total the calls that ended in a time, by thread; a call that started before counts from there."""
        low, high = self.between(start_ns, end_ns)
        places: dict[int, list[int]] = {}
        for place in range(low, high):
            places.setdefault(self.tids[place], []).append(place)
        found = {}
        for tid, own in places.items():
            durations = [duration for i in own if not isnan(duration := self.call_ns[i])]
            started_ns = self.started_ns(own[0])
            total = int(sum(durations)) - max(0, start_ns - started_ns) if durations else None
            found[tid] = CallTotals(len(own), total, max(started_ns, start_ns), self.ends_ns[own[-1]])
        return found


class FileCalls:
    """Recent calls of all processes, 16 bytes each, so that a flood of them fits.

    If it does not, the older half of the row (process and kind) that was idle longest is dropped.
    """

    def __init__(self) -> None:
        self._calls: Bounded[tuple[ProcessKey, str], _CallTimes] = Bounded(MAX_EVENTS, _CallTimes)
        self._count = 0
        self._dropped_ns = 0  # calls up to here may have been dropped

    def observe(self, event: FileLifeEvent) -> None:
        """Ingest one event of the trace."""
        if event.kind not in KINDS:
            return
        for kind in (event.kind, SYNCED_ALL) if event.kind == "synced" and event.inode is None else (event.kind,):
            self._calls.touch(((event.pid, event.start_ticks), kind)).add(event)
            self._count += 1
        while self._count > MAX_EVENTS:
            stalest = next(iter(self._calls))
            ends_ns = self._calls[stalest].ends_ns
            self._dropped_ns = max(self._dropped_ns, ends_ns[len(ends_ns) // 2])
            self._drop_before(stalest, ends_ns[len(ends_ns) // 2] + 1)

    def __len__(self) -> int:
        return self._count

    def _drop_before(self, key: tuple[ProcessKey, str], before_ns: int) -> None:
        calls = self._calls[key]
        dropped = bisect_left(calls.ends_ns, before_ns)
        self._count -= dropped
        if dropped == len(calls.ends_ns):
            del self._calls[key]
        elif dropped:
            calls.drop(dropped)

    def count_calls(self, processes: list[ProcessKey], kind: str, start_ns: int, end_ns: int) -> int:
        """Count the calls of one kind by some processes in a time."""
        places = (self._calls[process, kind].between(start_ns, end_ns) for process in processes)
        return sum(high - low for low, high in places)

    def totals_by_thread(self, process: ProcessKey, start_ns: int, end_ns: int) -> dict[int, dict[str, CallTotals]]:
        """Total the calls of a process in a time: {thread: {kind: total}}."""
        found: dict[int, dict[str, CallTotals]] = {}
        for kind in KINDS:
            for tid, spent in self._calls[process, kind].by_thread(start_ns, end_ns).items():
                found.setdefault(tid, {})[kind] = spent
        return found

    def deletion_span(self, process: ProcessKey, start_ns: int, until_ns: int, gap_ns: int) -> Span | None:
        """Find the run of deletions by the main thread from a time on; a file that it creates ends the run."""
        calls = self._calls[process, "unlinked"]
        first_ns, last_ns = None, start_ns
        for place in range(*calls.between(start_ns, until_ns)):
            if calls.tids[place] != process[0]:
                continue
            started_ns = max(calls.started_ns(place), last_ns)
            if started_ns - last_ns > gap_ns or started_ns > until_ns:
                break
            if first_ns is None:
                until_ns = self.next_creation_ns(process, started_ns, until_ns)
            first_ns = started_ns if first_ns is None else first_ns
            last_ns = calls.ends_ns[place]
        return None if first_ns is None else (first_ns, last_ns)

    def next_creation_ns(self, process: ProcessKey, start_ns: int, until_ns: int) -> int:
        """Return when the main thread creates the next file; `until_ns` if it creates none before."""
        calls = self._calls[process, "created"]
        creations = (calls.started_ns(place) for place in range(*calls.between(start_ns, until_ns))
                if calls.tids[place] == process[0])  # fmt: skip
        return next(creations, until_ns)

    def naming_spans(self, process: ProcessKey, start_ns: int, end_ns: int) -> list[Span]:
        """When its main thread renamed, removed or synced files: the runs that touch a time."""
        spans: list[Span] = []
        for kind in _NAMING_KINDS:
            calls = self._calls[process, kind]
            own = (place for place, tid in enumerate(calls.tids) if tid == process[0])
            spans += [(calls.started_ns(place), calls.ends_ns[place]) for place in own]
        return [row for row in merged(spans, NEARBY_NS) if start_ns <= row[1] and row[0] <= end_ns]

    def is_complete_since(self, start_ns: int) -> bool:
        """Whether no call since then was dropped."""
        return start_ns > self._dropped_ns

    def forget_before(self, at_ns: int) -> None:
        """Drop calls that ended before a time."""
        for key in list(self._calls):
            self._drop_before(key, at_ns)
