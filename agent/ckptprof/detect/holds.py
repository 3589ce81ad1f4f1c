"""Whether training was held by a save, and for how long."""

from __future__ import annotations

from dataclasses import dataclass

from ckptprof.detect.candidates import Candidate
from ckptprof.detect.trainers import TrainerBook
from ckptprof.model import Evidence, Mode


@dataclass(frozen=True)
class Hold:
    """How training was held; the evidence has no weight in the recognition."""

    mode: Mode | None = None
    stall_ns: int | None = None
    evidence: tuple[Evidence, ...] = ()
    blind: tuple[str, ...] = ()


def hold_of(candidate: Candidate, trainers: TrainerBook) -> Hold:
    """Return how training was held while the candidate went on."""
    del candidate, trainers
    return Hold()
