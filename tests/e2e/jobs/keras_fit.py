"""Keras on PyTorch: whole models (.keras) and weights alone (.weights.h5)."""

from __future__ import annotations

import warnings

import keras
import numpy as np
from life import Logbook, options, train, width

SUFFIXES = {"keras": ".keras", "weights": ".weights.h5"}


def main() -> None:
    """Save three times, or restore once and go on."""
    warnings.filterwarnings("ignore")
    told = options(*SUFFIXES)
    side = width(told.size_mb)
    model = keras.Sequential([keras.Input((side,)), keras.layers.Dense(side), keras.layers.Dense(side)])
    model.compile(optimizer=keras.optimizers.Adam(1e-4), loss="mse")
    inputs = np.random.default_rng(1).random((4, side), dtype=np.float32)
    step = 0

    def learn() -> None:
        nonlocal step
        model.train_on_batch(inputs, inputs)
        step += 1

    learn()
    book = Logbook(told, "keras")
    if told.resume:
        path = max(told.dir.iterdir())
        step = int(path.name.split(".")[0].split("_")[1])
        with book.timed("restore", step, path):
            if told.variant == "keras":
                model = keras.saving.load_model(path)
            else:
                model.load_weights(path)
    for _ in range(told.saves):
        train(learn, told)
        path = told.dir / f"model_{step:06d}{SUFFIXES[told.variant]}"
        with book.timed("save", step, path):
            if told.variant == "keras":
                model.save(path)
            else:
                model.save_weights(path)


if __name__ == "__main__":
    main()
