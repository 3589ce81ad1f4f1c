"""The course of a save: first data, last data, sync, commit, clean-up."""

from __future__ import annotations

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.world.clock import Clock
from ckptprof.model import Moments


def moments_of(candidate: Candidate, clock: Clock, *, committed: bool) -> Moments:
    """Return the moments that were seen; one that was not `committed` has no such moment.

    Of the clean-up the aftermath tells: it may come later.
    """
    if not candidate.writes:
        return Moments()
    first = min(part.first_data_ns for part in candidate.parts)
    last = max(part.last_data_ns(clock) for part in candidate.parts)
    synced = [at_ns for part in candidate.parts if (at_ns := part.synced_ns) is not None]
    return Moments(
        first_data_ns=clock.wall(first),
        last_data_ns=clock.wall(max(first, last)),
        synced_ns=_wall(clock, max(synced, default=None)),
        committed_ns=_wall(clock, _committed(candidate, clock) if committed else None),
    )


def _wall(clock: Clock, mono_ns: int | None) -> int | None:
    return None if mono_ns is None else clock.wall(mono_ns)


def _committed(candidate: Candidate, clock: Clock) -> int | None:
    """Return when the marker was complete or the last name given; of files without either, when they were closed."""
    signs = [part.end_ns for part in candidate.parts if part.name.commit]
    signs += [at_ns for part in candidate.parts if (at_ns := part.renamed_ns(clock)) is not None]
    if signs:
        return max(signs)
    closed = [part.close_call_ns for part in candidate.parts]
    known = [at_ns for at_ns in closed if at_ns is not None]
    return max(known) if len(known) == len(closed) else None
