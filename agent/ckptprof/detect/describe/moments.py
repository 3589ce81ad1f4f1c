"""The course of a checkpoint: first data, last data, sync, commit, and what was done to names and disks meanwhile."""

from __future__ import annotations

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.tolerances import STAMP_NS
from ckptprof.detect.world.clock import Clock
from ckptprof.detect.world.world import World
from ckptprof.model import Metadata, Moments

_KINDS = ("created", "renamed", "unlinked", "synced")


def moments_of(candidate: Candidate, clock: Clock, *, committed: bool) -> Moments:
    """Return the moments of a save that were seen; one that was not `committed` has no such moment.

    When old ones were cleaned up becomes known later.
    """
    if not candidate.writes:
        return Moments()
    first_ns = min(part.first_data_ns for part in candidate.parts)
    last_ns = max(part.last_data_ns(clock) for part in candidate.parts)
    synced_ns = max((at_ns for part in candidate.parts if (at_ns := part.synced_ns) is not None), default=None)
    committed_ns = _committed_ns(candidate, clock) if committed else None
    return Moments(
        first_data_ns=clock.wall(first_ns),
        last_data_ns=clock.wall(max(first_ns, last_ns)),
        synced_ns=None if synced_ns is None else clock.wall(synced_ns),
        committed_ns=None if committed_ns is None else clock.wall(committed_ns),
    )


def _committed_ns(candidate: Candidate, clock: Clock) -> int | None:
    """Return when the marker was complete or the last name given; of files without either, when they were closed."""
    signs = [part.end_ns for part in candidate.parts if part.name.commit]
    signs += [at_ns for part in candidate.parts if (at_ns := part.renamed_ns(clock)) is not None]
    if signs:
        return max(signs)
    closed = [part.closed_ns for part in candidate.parts if part.operations is not None]  # else it is a look's time
    known = [at_ns for at_ns in closed if at_ns is not None]
    return max(known) if len(known) == len(candidate.parts) else None


def metadata_of(candidate: Candidate, world: World) -> Metadata:
    """Return what else was done: all but what was lost, or which of the files were new."""
    sums = [part.operations for part in candidate.parts if part.operations is not None]
    if not sums:
        born = _born(candidate, world.clock) if candidate.writes else None
        return Metadata(created=born, at_least=born is not None)
    timed = [one.call_ns for one in sums if one.call_ns is not None]
    data_call_ns = sum(timed) if timed else None
    start_ns, end_ns = candidate.start_ns, candidate.end_ns
    lost = bool(world.health.lost(start_ns, end_ns))
    if not candidate.writes:
        return Metadata(at_least=lost, data_call_ns=data_call_ns)
    calls = world.calls
    told = {kind: calls.count(candidate.processes, kind, start_ns, end_ns) for kind in _KINDS}
    return Metadata(**told, at_least=lost or not calls.is_whole(start_ns), data_call_ns=data_call_ns)


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
