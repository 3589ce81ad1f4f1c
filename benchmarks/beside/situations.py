"""The situations of a node that an agent is measured in, and what it may cost in each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from beside.crowds import USUAL, crowd
from beside.jobs import NEVER_SECONDS, everyday, training

Make = Callable[[Path, float], AbstractContextManager[int | None]]  # in a folder, for so many seconds at least; its pid


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
    count: int | None = None  # of a crowd
    in_turns: bool = False  # an agent that opens a checkpoint to look into it wakes the others


def crowded(name: str, goal: Goal | None = None, count: int | None = None, *, in_turns: bool = False) -> Situation:
    """Return a crowd, of the usual number if none is said."""
    number = USUAL[name] if count is None else count
    return Situation(lambda directory, _: crowd(name, number, directory), 10, goal, goal, number, in_turns)


SITUATIONS: Mapping[str, Situation] = {
    "idle": Situation(lambda *_: nullcontext(), 0, Goal(0.25, "x"), Goal(0.25, "x")),
    "trains": Situation(lambda at, _: training(at, NEVER_SECONDS), 20, Goal(0.4, "x"), Goal(0.4, "x")),
    "saves": Situation(lambda at, _: training(at), 0, Goal(0.6, "x"), Goal(0.8, "x"), in_turns=True),
    "interpreters": crowded("interpreters", Goal(1.0)),
    "files": crowded("files", Goal(1.0)),
    "mappings": crowded("mappings", Goal(1.0)),
    "threads": crowded("threads", Goal(1.0)),
    "ranks": crowded("ranks", Goal(3.0), in_turns=True),
    "everyday": Situation(everyday, 5, Goal(2.0), Goal(4.0)),
}
