"""All known frameworks: if a name matches two, the first one counts."""

from __future__ import annotations

from dataclasses import replace

from ckptprof.frameworks.framework_entry import Framework, Layer
from ckptprof.frameworks.known import engines, formats, libraries, trainers

_UNKNOWN_WEIGHT = 0.6
_BY_LAYER: dict[Layer, tuple[Framework, ...]] = {
    Layer.TRAINER: trainers.FRAMEWORKS,
    Layer.ENGINE: engines.FRAMEWORKS,
    Layer.LIBRARY: libraries.FRAMEWORKS,
    Layer.FORMAT: formats.FRAMEWORKS,
}
FRAMEWORKS = tuple(replace(one, layer=layer) for layer, known in _BY_LAYER.items() for one in known)
BY_NAME = {framework.name: framework for framework in FRAMEWORKS}
COMPANIONS = tuple(one for framework in FRAMEWORKS for one in framework.companions)


def libraries_of(name: str | None) -> frozenset[str]:
    """Libraries of a job that saves by this framework: itself, its base, and what it uses; empty if unknown."""
    entry = BY_NAME.get(name or "")
    if entry is None:
        return frozenset()
    return frozenset({entry.name, *entry.libraries}).union(*map(libraries_of, entry.extends))


def evidence_weight(name: str) -> float:
    """Weight, as evidence, of names of this framework: 0.15 to 0.6."""
    entry = BY_NAME.get(name)
    return entry.weight if entry is not None else _UNKNOWN_WEIGHT
