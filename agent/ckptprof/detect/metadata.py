"""What was done to names and to disks while a checkpoint was written: how much of it was not data."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

from ckptprof.detect.blind import HealthBook
from ckptprof.detect.candidates import Candidate
from ckptprof.detect.edges import Clock
from ckptprof.detect.streams import ProcessKey
from ckptprof.detect.traced import Traced
from ckptprof.model import Metadata
from ckptprof_collectors.samples import FileLifeEvent

KINDS = ("created", "renamed", "unlinked", "synced")
MAX_EVENTS = 262_144  # 8 bytes each: those of the process that did nothing for the longest go first
_STAMP_NS = 60_000_000  # file systems stamp with the clock of the last timer tick; edges lie between two looks


class NameBook:
    """When each process created, renamed, deleted and synced files; times only, so that a flood of them fits."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._times: dict[ProcessKey, dict[str, array[int]]] = {}  # CLOCK_MONOTONIC, ascending; the latest process last
        self._count = 0
        self._dropped_ns = 0  # up to here not all of it is known

    def __len__(self) -> int:
        """Return how many events are held."""
        return self._count

    def happen(self, event: FileLifeEvent) -> None:
        """Take one event of the trace."""
        if event.kind not in KINDS:
            return
        process = (event.pid, event.start_ticks)
        own = self._times.pop(process, None) or {}
        self._times[process] = own
        times = own.setdefault(event.kind, array("q"))
        if times and event.at_ns < times[-1]:  # told by another processor
            times.insert(bisect_right(times, event.at_ns), event.at_ns)
        else:
            times.append(event.at_ns)
        self._count += 1
        while self._count > MAX_EVENTS:
            self._drop_half(next(iter(self._times)))

    def _drop_half(self, process: ProcessKey) -> None:
        own = self._times[process]
        cut_ns = max((times[len(times) // 2] for times in own.values()), default=0)
        self._dropped_ns = max(self._dropped_ns, cut_ns)
        self._cut(process, cut_ns + 1)

    def _cut(self, process: ProcessKey, before_ns: int) -> None:
        own = self._times[process]
        for kind, times in list(own.items()):
            gone = bisect_left(times, before_ns)
            self._count -= gone
            own[kind] = times[gone:]
            if not own[kind]:
                del own[kind]
        if not own:
            del self._times[process]

    def count(self, processes: list[ProcessKey], kind: str, start_ns: int, end_ns: int) -> int:
        """Return how often some processes did one thing from one time to another."""
        found = 0
        for process in processes:
            times = self._times.get(process, {}).get(kind)
            if times is not None:
                found += bisect_right(times, end_ns) - bisect_left(times, start_ns)
        return found

    def is_whole(self, start_ns: int) -> bool:
        """Return whether everything since then is held that was told."""
        return start_ns > self._dropped_ns

    def forget_before(self, at_ns: int) -> None:
        """Drop what happened before `at_ns`."""
        for process in list(self._times):
            self._cut(process, at_ns)


def metadata_of(candidate: Candidate, names: NameBook, health: HealthBook, clock: Clock) -> Metadata:
    """Return what is known of it: by the trace all but what it lost, by polling which of the files were new."""
    traces = [part.stream.trace for part in candidate.parts if part.stream.trace is not None]
    if not traces:
        born = _born(candidate, clock) if candidate.writes else None
        return Metadata(created=born, at_least=born is not None)
    data_call_ns = _in_calls(traces)
    start_ns, end_ns = candidate.start_ns, candidate.end_ns
    lost = bool(health.lost(start_ns, end_ns))
    if not candidate.writes:
        return Metadata(at_least=lost, data_call_ns=data_call_ns)
    seen = KINDS if health.sees_names else ("synced",)
    told = {kind: names.count(candidate.processes, kind, start_ns, end_ns) for kind in seen}
    return Metadata(**told, at_least=lost or not names.is_whole(start_ns), data_call_ns=data_call_ns)


def _in_calls(traces: list[Traced]) -> int | None:
    timed = [trace.totals.call_ns for trace in traces if trace.sessions]
    known = [call_ns for call_ns in timed if call_ns is not None]
    return sum(known) if known else None


def _born(candidate: Candidate, clock: Clock) -> int | None:
    """Return how many of the files were made while it went on; None if the file system does not tell."""
    births = {
        part.stream.path: clock.mono(part.stream.fact.birth_ns)
        for part in candidate.parts
        if part.stream.fact is not None and part.stream.fact.birth_ns is not None
    }
    if not births:
        return None
    low_ns, high_ns = candidate.start_ns - _STAMP_NS, candidate.end_ns + _STAMP_NS
    return sum(1 for born_ns in births.values() if low_ns <= born_ns <= high_ns)
