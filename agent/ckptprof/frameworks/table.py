"""All frameworks that are known by name: of two that a name fits, the one that stands first."""

from __future__ import annotations

from ckptprof.frameworks.known import engines, formats, layouts, trainers

FRAMEWORKS = (*trainers.FRAMEWORKS, *engines.FRAMEWORKS, *layouts.FRAMEWORKS, *formats.FRAMEWORKS)
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
