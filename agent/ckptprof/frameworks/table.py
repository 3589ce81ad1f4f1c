"""All frameworks that are known by name: of two that a name fits, the one that stands first."""

from __future__ import annotations

from dataclasses import replace

from ckptprof.frameworks.knowledge import Framework, Layer
from ckptprof.frameworks.known import engines, formats, layouts, trainers

_UNKNOWN_WEIGHT = 0.6
_KNOWN: dict[Layer, tuple[Framework, ...]] = {
    Layer.TRAINER: trainers.FRAMEWORKS,
    Layer.ENGINE: engines.FRAMEWORKS,
    Layer.LIBRARY: layouts.FRAMEWORKS,
    Layer.FORMAT: formats.FRAMEWORKS,
}
FRAMEWORKS = tuple(replace(one, layer=layer) for layer, known in _KNOWN.items() for one in known)
BY_NAME = {framework.name: framework for framework in FRAMEWORKS}
COMPANIONS = tuple(one for framework in FRAMEWORKS for one in framework.companions)
SHARDED = frozenset(framework.sharded for framework in FRAMEWORKS if framework.sharded is not None)
CONSOLIDATED = frozenset(framework.consolidated for framework in FRAMEWORKS if framework.consolidated is not None)


def libraries(name: str | None) -> frozenset[str]:
    """Return what a job has that saves by this framework: itself, what it is built on, and what it uses; or nothing."""
    known = BY_NAME.get(name or "")
    if known is None:
        return frozenset()
    return frozenset({known.name, *known.libraries}).union(*map(libraries, known.extends))


def weight_of(name: str) -> float:
    """Return how much it is worth as evidence that files are named as this framework names them, 0.15 to 0.6."""
    entry = BY_NAME.get(name)
    return entry.weight if entry is not None else _UNKNOWN_WEIGHT
