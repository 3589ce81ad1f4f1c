"""The course of a save: first data, last data, sync, commit, clean-up."""

from __future__ import annotations

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.transfers.part import Part
from ckptprof.detect.transfers.traced import COMMIT_NS
from ckptprof.detect.world.clock import Clock
from ckptprof.model import Moments


def moments_of(candidate: Candidate, clock: Clock, *, committed: bool) -> Moments:
    """Return the moments that were seen; one that was not `committed` has no such moment.

    Of the clean-up the aftermath tells: it may come later.
    """
    if not candidate.writes:
        return Moments()
    first = min(_first_data(part) for part in candidate.parts)
    last = max(_last_data(part, clock) for part in candidate.parts)
    return Moments(
        first_data_ns=clock.wall(first),
        last_data_ns=clock.wall(max(first, last)),
        synced_ns=_wall(clock, _synced(candidate)),
        committed_ns=_wall(clock, _committed(candidate, clock) if committed else None),
    )


def _wall(clock: Clock, mono_ns: int | None) -> int | None:
    return None if mono_ns is None else clock.wall(mono_ns)


def _first_data(part: Part) -> int:
    trace = (part.staged or part.stream).trace
    return trace.totals.first_ns if trace is not None and trace.sessions else part.start_ns


def _last_data(part: Part, clock: Clock) -> int:
    stream = part.stream
    if stream.trace is not None and stream.trace.sessions:
        return stream.trace.totals.last_ns
    renamed_ns = _renamed(part, clock)
    modified_ns = clock.mono(stream.fact.modified_ns) if stream.fact is not None else None
    if renamed_ns is None or modified_ns is None or not part.start_ns <= modified_ns <= part.end_ns:
        return part.end_ns
    return modified_ns


def _synced(candidate: Candidate) -> int | None:
    """Return the end of the last sync by the process itself; polling sees none."""
    ends = []
    for part in candidate.parts:
        trace = part.stream.trace
        if trace is not None and trace.sessions:
            ends += [end for _, end in trace.syncs if end <= trace.totals.last_ns + COMMIT_NS]
    return max(ends, default=None)


def _committed(candidate: Candidate, clock: Clock) -> int | None:
    """Return when the marker was complete or the last name given; of files without either, when they were closed."""
    signs = [part.end_ns for part in candidate.parts if part.name.commit]
    signs += [at_ns for part in candidate.parts if (at_ns := _renamed(part, clock)) is not None]
    if signs:
        return max(signs)
    closed = [part.stream.trace.closed_ns if part.stream.trace is not None else None for part in candidate.parts]
    known = [at_ns for at_ns in closed if at_ns is not None]
    return max(known) if len(known) == len(closed) else None


def _renamed(part: Part, clock: Clock) -> int | None:
    stream = part.stream
    if stream.trace is not None:
        return stream.trace.renamed_ns
    if stream.earlier_path is None or stream.fact is None:
        return None
    changed_ns = clock.mono(stream.fact.changed_ns)
    return changed_ns if part.start_ns <= changed_ns <= part.end_ns + COMMIT_NS else None
