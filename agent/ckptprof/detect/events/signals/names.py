"""What the files are called, and how they begin."""

from __future__ import annotations

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.knowledge import Knowledge
from ckptprof.detect.events.signals.weights import WEIGHTS
from ckptprof.detect.events.traits import candidate_bytes, framework_of
from ckptprof.frameworks.formats import COMPRESSED, file_format
from ckptprof.frameworks.identity import weight_of
from ckptprof.model import Evidence


def named(candidate: Candidate, known: Knowledge) -> Evidence | None:
    """Weigh a framework's names; what they are worth is said in its entry."""
    name = framework_of(candidate, known)
    if name is None:
        return None
    return Evidence(name="name", weight=weight_of(name), text=f"files are named as {name} names them")


def formatted(candidate: Candidate, _: Knowledge) -> Evidence | None:
    """Weigh the first bytes of most of it."""
    formats: dict[str, int] = {}
    for part in candidate.parts:
        fact = part.fact
        kind = file_format(fact.magic, part.path) if fact else None
        if kind is not None and kind != COMPRESSED:
            formats[kind] = formats.get(kind, 0) + part.bytes
    if not formats:
        return None
    best = max(formats, key=lambda kind: formats[kind])
    weight = WEIGHTS.get(f"format-{best}", WEIGHTS["format-zip"])
    return Evidence(name="format", weight=weight, text=f"its first bytes are those of {best}")


def hinted(candidate: Candidate, _: Knowledge) -> Evidence | None:
    """Weigh a word that people use for checkpoints, or a number that counts training."""
    hints = sum(part.bytes for part in candidate.parts if part.name.hint)
    if hints * 2 < candidate_bytes(candidate):
        return None
    if candidate.step is not None:
        return Evidence(name="step", weight=WEIGHTS["step"], text=f"its name counts training: step {candidate.step}")
    return Evidence(name="word", weight=WEIGHTS["word"], text="its name has a word for checkpoints")
