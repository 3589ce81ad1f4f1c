"""A forest of plain Python objects: `pickle.dumps`, then one write; the restart unpickles the last."""

from __future__ import annotations

import pickle
import random
from dataclasses import dataclass, field

from lives import Life, until

Leaf = tuple[int, float, float]


@dataclass
class Tree:
    """As a library without NumPy has it."""

    depth: int
    leaves: list[Leaf] = field(default_factory=list)


def grown(count: int) -> list[Tree]:
    """Return trees of a thousand leaves."""
    return [Tree(10, [(at, random.random(), random.random()) for at in range(1000)]) for _ in range(count)]  # noqa: S311


def main() -> None:
    """Grow a forest in three rounds, then go on from the last."""
    life = Life(__doc__)
    rows = [random.random() for _ in range(4000)]  # noqa: S311 - nothing secret
    forest: list[Tree] = []
    if life.again:
        path = life.folder / "forest_round_3.pkl"
        with life.restore(path) as row:
            with row.part("read"):
                blob = path.read_bytes()
            with row.part("serialize"):
                forest = pickle.loads(blob)  # noqa: S301 - our own
            del blob
        until(2, lambda: sorted(rows, key=lambda one: one * 3 % 1))
        return
    for number in (1, 2, 3):
        until(2.5, lambda: sorted(rows, key=lambda one: one * 3 % 1))
        forest += grown(500)
        until(1, lambda: sorted(rows, key=lambda one: one * 3 % 1))
        path = life.folder / f"forest_round_{number}.pkl"
        with life.save(path) as row:
            with row.part("serialize"):
                blob = pickle.dumps(forest)
            with row.part("write"):
                path.write_bytes(blob)
            del blob
    until(1, lambda: sorted(rows, key=lambda one: one * 3 % 1))
    life.start_again()


if __name__ == "__main__":
    main()
