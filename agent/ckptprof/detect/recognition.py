"""Decides what a candidate is, a save, a restore, a copy or nothing, and what earlier ones turn out to have been."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import msgspec

from ckptprof.detect.assemble import Scene, assemble
from ckptprof.detect.candidates import Candidate
from ckptprof.detect.evidence import (
    MIN_BYTES,
    THRESHOLD,
    candidate_bytes,
    confidence,
    remember,
    score,
    shapes,
    weigh,
)
from ckptprof.model import Checkpoint, Evidence

_HOLD_SCORE = 0.3  # just below recognition: kept for the case that it comes again
_MAX_HELD = 64
_MAX_REJECTED = 256


@dataclass(frozen=True)
class Rejected:
    """A candidate that was not recognised, for those who ask why."""

    path: str
    bytes: int
    writes: bool
    job: str
    score: float
    evidence: tuple[Evidence, ...]


@dataclass(slots=True)
class _Held:
    checkpoint: Checkpoint
    shapes: frozenset[str]


class Recogniser:
    """Judges candidates one by one, in the order in which they were over."""

    def __init__(self, scene: Scene) -> None:
        """Start with what is known around the candidates."""
        self._scene = scene
        self._memory = scene.around.memory
        self._held: deque[_Held] = deque(maxlen=_MAX_HELD)
        self.rejected: deque[Rejected] = deque(maxlen=_MAX_REJECTED)

    def judge(self, candidate: Candidate) -> list[Checkpoint]:
        """Return what the candidate is, and with it what earlier ones were, as it shows."""
        total_bytes = candidate_bytes(candidate)
        if total_bytes < MIN_BYTES:
            return []
        around = self._scene.around
        evidence = weigh(candidate, around)
        total = score(evidence)
        remember(candidate, self._memory)
        if total < THRESHOLD:
            self._reject(candidate, total_bytes, total, evidence)
            return []
        checkpoint = assemble(candidate, evidence, confidence(total), self._scene)
        if candidate.writes:
            for part in candidate.parts:
                self._memory.saved(part.stream.path)
            self._memory.saved(candidate.unit.partition("#")[0] if "#" not in candidate.unit else candidate.unit)
        return [*self._release(candidate), checkpoint]

    def _reject(self, candidate: Candidate, total_bytes: int, total: float, evidence: list[Evidence]) -> None:
        path = max(candidate.parts, key=lambda part: part.bytes).stream.path
        self.rejected.append(
            Rejected(path, total_bytes, candidate.writes, candidate.job, round(total, 2), tuple(evidence))
        )
        against = any(reason.weight < 0 for reason in evidence)
        if candidate.writes and total >= _HOLD_SCORE and not against:
            held = assemble(candidate, evidence, 0.5, self._scene)
            self._held.append(_Held(held, shapes(candidate)))

    def _release(self, candidate: Candidate) -> list[Checkpoint]:
        """Return the earlier candidates of the same series: what was too little for one is enough for several."""
        released = []
        for held in list(self._held):
            if held.checkpoint.job == candidate.job and held.shapes & shapes(candidate):
                self._held.remove(held)
                reason = Evidence(name="recurs", weight=0.3, text="the job wrote the like of it again")
                released.append(msgspec.structs.replace(held.checkpoint, evidence=(*held.checkpoint.evidence, reason)))
        return released
