"""What speaks for and against calling a candidate a checkpoint: each sign with its weight, none of them decisive."""

from __future__ import annotations

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.knowledge import Knowledge
from ckptprof.detect.events.signals import SIGNALS
from ckptprof.detect.events.signals.weights import LIKENESS
from ckptprof.detect.events.traits import candidate_bytes, framework_of, shapes
from ckptprof.model import Evidence

__all__ = ["candidate_bytes", "confidence", "framework_of", "likeness", "score", "shapes", "weigh"]

THRESHOLD = 0.6
MIN_BYTES = 1 << 20


def weigh(candidate: Candidate, known: Knowledge) -> list[Evidence]:
    """Return the reasons, for and against."""
    found = (sign(candidate, known) for sign in SIGNALS)
    return [reason for reason in found if reason is not None]


def score(evidence: list[Evidence]) -> float:
    """Return the sum of the weights."""
    return sum(reason.weight for reason in evidence)


def likeness(evidence: list[Evidence]) -> float:
    """Return how much its files look like a checkpoint's, whoever moved them."""
    return sum(reason.weight for reason in evidence if reason.name in LIKENESS)


def confidence(total: float) -> float:
    """Return how sure a recognised candidate is, 0.5 (just enough evidence) to 0.99."""
    return round(min(0.99, max(0.5, 0.5 + (total - THRESHOLD) * 0.6)), 2)
