"""What was done to names and to disks while a checkpoint was written: how much of it was not data."""

from __future__ import annotations

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.transfers.model.tolerances import STAMP_NS
from ckptprof.detect.world.clock import Clock
from ckptprof.detect.world.file_calls import FileCalls
from ckptprof.detect.world.trace_health import TraceHealthHistory
from ckptprof.model import Metadata

KINDS = ("created", "renamed", "unlinked", "synced")


def metadata_of(candidate: Candidate, names: FileCalls, health: TraceHealthHistory, clock: Clock) -> Metadata:
    """Return what is known of it: all but what was lost, or which of the files were new."""
    sums = [part.operations for part in candidate.parts if part.operations is not None]
    if not sums:
        born = _born(candidate, clock) if candidate.writes else None
        return Metadata(created=born, at_least=born is not None)
    timed = [one.call_ns for one in sums if one.call_ns is not None]
    data_call_ns = sum(timed) if timed else None
    start_ns, end_ns = candidate.start_ns, candidate.end_ns
    lost = bool(health.lost(start_ns, end_ns))
    if not candidate.writes:
        return Metadata(at_least=lost, data_call_ns=data_call_ns)
    seen = KINDS if health.sees_names else ("synced",)
    told = {kind: names.count(candidate.processes, kind, start_ns, end_ns) for kind in seen}
    return Metadata(**told, at_least=lost or not names.is_whole(start_ns), data_call_ns=data_call_ns)


def _born(candidate: Candidate, clock: Clock) -> int | None:
    """Return how many of the files were made while it went on; None if the file system does not tell."""
    births = {
        part.path: clock.mono(part.fact.birth_ns)
        for part in candidate.parts
        if part.fact is not None and part.fact.birth_ns is not None
    }
    if not births:
        return None
    low_ns, high_ns = candidate.start_ns - STAMP_NS, candidate.end_ns + STAMP_NS
    return sum(1 for born_ns in births.values() if low_ns <= born_ns <= high_ns)
