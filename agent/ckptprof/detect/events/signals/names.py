"""What the files are called, and how they begin."""

from __future__ import annotations

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.knowledge import Knowledge
from ckptprof.detect.events.signal import Found
from ckptprof.detect.events.traits import candidate_bytes, framework_of
from ckptprof.frameworks.formats import COMPRESSED, file_format
from ckptprof.frameworks.identity import weight_of

_FORMAT_ROWS = {
    "safetensors": "format-safetensors",
    "torch-zip": "format-model",
    "gguf": "format-model",
    "keras": "format-model",
}


def named(candidate: Candidate, known: Knowledge) -> Found | None:
    """Return the framework whose names its files bear; what they are worth is said in its entry."""
    name = framework_of(candidate, known)
    return Found(name, strength=weight_of(name)) if name is not None else None


def formatted(candidate: Candidate, _: Knowledge) -> Found | None:
    """Return the format that the first bytes of most of it say."""
    formats: dict[str, int] = {}
    for part in candidate.parts:
        fact = part.fact
        kind = file_format(fact.magic, part.path) if fact else None
        if kind is not None and kind != COMPRESSED:
            formats[kind] = formats.get(kind, 0) + part.bytes
    if not formats:
        return None
    best = max(formats, key=lambda kind: formats[kind])
    return Found(best, row=_FORMAT_ROWS.get(best, "format-data"))


def has_step(candidate: Candidate, _: Knowledge) -> str | None:
    """Return the number that counts training in its name."""
    return str(candidate.step) if _is_hinted(candidate) and candidate.step is not None else None


def has_word(candidate: Candidate, _: Knowledge) -> bool:
    """Return whether its name has a word that people use for checkpoints, and no step."""
    return _is_hinted(candidate) and candidate.step is None


def _is_hinted(candidate: Candidate) -> bool:
    return sum(part.bytes for part in candidate.parts if part.name.hint) * 2 >= candidate_bytes(candidate)
