"""The course of a save: first data, last data, sync, commit, clean-up."""

from __future__ import annotations

from ckptprof.detect.candidates import Candidate
from ckptprof.detect.edges import Clock
from ckptprof.model import Moments


def moments_of(candidate: Candidate, clock: Clock) -> Moments:
    """Return the moments that were seen."""
    first = min(part.start_ns for part in candidate.parts)
    last = max(part.end_ns for part in candidate.parts)
    return Moments(first_data_ns=clock.wall(first), last_data_ns=clock.wall(last))
