"""A booster that keeps itself as text: the whole of it becomes one JSON, over the same file; the restart parses it."""

from __future__ import annotations

import json
import random

from lives import Life, until


def main() -> None:
    """Boost in two lives."""
    life = Life(__doc__)
    path = life.folder / "model.json"
    gradients = [random.random() for _ in range(20_000)]  # noqa: S311 - nothing secret
    model: dict[str, list[object]] = {"trees": []}

    def step() -> None:
        sums = [0.0] * 64
        for gradient in gradients:
            sums[int(gradient * 64)] += gradient

    if life.again:
        with life.restore(path) as row:
            with row.part("read"):
                text = path.read_text()
            with row.part("serialize"):
                model = json.loads(text)["learner"]
            del text
    for _ in range(2 if life.again else 3):
        until(2.5, step)
        for _ in range(900):
            leaves = [random.random() for _ in range(500)]  # noqa: S311
            model["trees"].append({"split_indices": list(range(500)), "base_weights": leaves, "loss": leaves[::-1]})
        until(1, step)
        with life.save(path) as row:
            with row.part("serialize"):
                text = json.dumps({"learner": model, "version": [2, 1, 0]})
            with row.part("write"):
                path.write_text(text)
            del text
    until(1, step)
    if not life.again:
        life.start_again()


if __name__ == "__main__":
    main()
