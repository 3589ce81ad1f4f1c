"""Jobs of plain Python, without NumPy or any other library."""

from __future__ import annotations

import array
import json
import math
import os
import pickle
import random

from frame import MB, Life, run, sync, until


def json_booster(life: Life) -> None:
    """A booster that keeps itself as text: the whole becomes one JSON, over the same file; the restart parses it."""
    path = life.folder / "model.json"
    gradients = [random.random() for _ in range(20_000)]
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
            leaves = [random.random() for _ in range(500)]
            model["trees"].append({"split_indices": list(range(500)), "base_weights": leaves, "loss": leaves[::-1]})
        until(1, step)
        with life.save(path) as row:
            with row.part("serialize"):
                text = json.dumps({"learner": model, "version": [2, 1, 0]})
            with row.part("write"):
                path.write_text(text)
            del text
    life.end(1, step)


def renamed_over(life: Life) -> None:
    """Plain Python by the book: written beside, synced, renamed over the last, the folder synced."""
    numbers = {f"layer{at}": array.array("d", os.urandom(MB) * 16) for at in range(5)}
    weights, path = [0.1] * 2000, life.folder / "state.pkl"

    def step() -> None:
        weights[:] = [math.tanh(weight * 1.01) for weight in weights]

    for epoch in range(4):
        until(2.5, step)
        with life.save(path) as row:
            part = path.with_name(path.name + ".new")
            with part.open("wb") as file:
                with row.part("write"):
                    pickle.dump({"epoch": epoch, "layers": numbers}, file)
                with row.part("sync"):
                    file.flush()
                    os.fsync(file.fileno())
            part.replace(path)
            sync(life.folder)
    until(1, step)


if __name__ == "__main__":
    run(globals())
