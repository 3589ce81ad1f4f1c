"""Whether training was held by a save, and for how long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ckptprof.detect.candidates import Candidate
from ckptprof.detect.streams import ProcessKey
from ckptprof.detect.trainers import TrainerBook
from ckptprof.model import Evidence, Mode


@dataclass(frozen=True)
class Hold:
    """How training was held; the evidence has no weight in the recognition."""

    mode: Mode | None = None
    stall_ns: int | None = None
    evidence: tuple[Evidence, ...] = ()
    blind: tuple[str, ...] = ()
    roles: Mapping[ProcessKey, str] = field(default_factory=dict)  # of its writers: trainer | thread | child | daemon


def hold_of(candidate: Candidate, trainers: TrainerBook) -> Hold:
    """Return how training was held while the candidate went on."""
    del candidate, trainers
    return Hold()
