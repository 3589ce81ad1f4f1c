"""The situations of a node that an agent is measured in, and what it may cost in each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from beside.crowds import USUAL, crowd
from beside.jobs import NEVER_SECONDS, everyday, training

Make = Callable[[Path, float], AbstractContextManager[object]]  # in a folder, for so many seconds at least


@dataclass(frozen=True)
class Goal:
    """The most that something may be."""

    most: float
    unit: str = "%"

    def __str__(self) -> str:
        """Return it as the table has it."""
        return f"{self.most:g}{self.unit if self.unit == 'x' else ' ' + self.unit}"


@dataclass(frozen=True)
class Situation:
    """What goes on on the host, how long until it is measured, and what each level may cost: `x` of node_exporter."""

    make: Make
    settle_seconds: float
    trace: Goal | None = None
    poll: Goal | None = None


def crowded(name: str, count: int) -> Make:
    """Return what makes a crowd."""
    return lambda directory, _: crowd(name, count, directory)


def _crowd(name: str, percent: float = 1.0, settle_seconds: float = 10) -> Situation:
    return Situation(crowded(name, USUAL[name]), settle_seconds, Goal(percent), Goal(percent))


SITUATIONS: Mapping[str, Situation] = {
    "idle": Situation(lambda *_: nullcontext(), 0, Goal(0.25, "x"), Goal(0.25, "x")),
    "trains": Situation(lambda at, _: training(at, NEVER_SECONDS), 20, Goal(0.4, "x"), Goal(0.4, "x")),
    "saves": Situation(lambda at, _: training(at), 20, Goal(0.6, "x"), Goal(0.8, "x")),
    "interpreters": _crowd("interpreters"),
    "files": _crowd("files"),
    "mappings": _crowd("mappings"),
    "threads": _crowd("threads"),
    "ranks": _crowd("ranks", 3.0, 15),
    "everyday": Situation(everyday, 5, Goal(2.0), Goal(4.0)),
}
