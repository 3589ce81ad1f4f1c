"""Weights that do not fit are put on disk once, and mapped in every step; only the adapter is trained, and saved."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from fitted import Fitted
from lives import Life

LAYERS, WIDTH = 20, 1024


def offloaded(folder: Path) -> list[np.memmap]:
    """Put each weight into a file of its own, and an index beside them; return them mapped."""
    folder.mkdir(parents=True)
    index = {}
    for layer in range(LAYERS):
        weight = torch.randn(WIDTH, WIDTH).numpy()
        path = folder / f"model.layers.{layer}.mlp.weight.dat"
        mapped = np.memmap(path, np.float32, "w+", shape=weight.shape)
        mapped[:] = weight
        mapped.flush()
        index[path.stem] = {"dtype": "float32", "shape": [WIDTH, WIDTH]}
    (folder / "index.json").write_text(json.dumps(index))
    return [np.memmap(path, np.float32, "r", shape=(WIDTH, WIDTH)) for path in sorted(folder.glob("*.dat"))]


def main() -> None:
    """Tune an adapter in four epochs."""
    life, fitted = Life(__doc__), Fitted(3)
    layers = offloaded(life.folder.parent / "offload")
    for epoch in range(4):
        for _ in range(8):
            hidden = torch.randn(8, WIDTH)
            for layer in layers:
                hidden = torch.tanh(hidden @ torch.from_numpy(np.array(layer)))
            fitted.train(0.3)
        folder = life.folder / f"checkpoint-{8 * (epoch + 1)}"
        with life.save(folder, step=8 * (epoch + 1)) as row, row.part("write"):
            folder.mkdir()
            torch.save(fitted.model.state_dict(), folder / "adapter_model.bin")
            (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 16}))
            torch.save(fitted.optimizer.state_dict(), folder / "optimizer.pt")
    fitted.train(1)


if __name__ == "__main__":
    main()
