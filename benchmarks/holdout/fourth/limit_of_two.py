"""As diffusers by accelerate: the oldest goes first, then shards, an index, the average, the optimizer and states.

The second life resumes from the newest.
"""

from __future__ import annotations

import copy
import json
import pickle
import random
import shutil
from pathlib import Path

import numpy as np
import torch
from fitted import Fitted
from lives import Life
from safetensors.torch import load_file, save_file

KEPT = 2
SHARDS = 3


def save_pretrained(folder: Path, weights: dict[str, torch.Tensor]) -> None:
    """Write shards of the weights, and what is where."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"_class_name": "UNet2DConditionModel", "sample_size": 64}))
    names = sorted(weights)
    index: dict[str, str] = {}
    for at in range(SHARDS):
        shard = f"diffusion_pytorch_model-{at + 1:05d}-of-{SHARDS:05d}.safetensors"
        mine = names[at::SHARDS]
        save_file({name: weights[name] for name in mine}, folder / shard, metadata={"format": "pt"})
        index |= dict.fromkeys(mine, shard)
    text = json.dumps({"metadata": {"total_size": 0}, "weight_map": index}, indent=2)
    (folder / "diffusion_pytorch_model.safetensors.index.json").write_text(text)


def _newest_last(folder: Path) -> list[Path]:
    return sorted(folder.glob("checkpoint-*"), key=lambda one: int(one.name.partition("-")[2]))


def _loaded(folder: Path) -> dict[str, torch.Tensor]:
    weights: dict[str, torch.Tensor] = {}
    for shard in sorted(folder.glob("*.safetensors")):
        weights |= load_file(shard)
    return weights


def _resumed(life: Life, fitted: Fitted, average: torch.nn.Module) -> int:
    newest = _newest_last(life.folder)[-1]
    step = int(newest.name.partition("-")[2])
    with life.restore(newest, step=step) as row, row.part("read"):
        average.load_state_dict(_loaded(newest / "unet_ema"))
        fitted.load({"model": _loaded(newest / "unet"), "optimizer": torch.load(newest / "optimizer.bin")})
        pickle.loads((newest / "random_states_0.pkl").read_bytes())  # noqa: S301 - our own
    return step


def main() -> None:
    """Train in two lives, save every 500 steps as they are counted here."""
    life, fitted = Life(__doc__), Fitted(8)
    average = copy.deepcopy(fitted.model)
    generator = np.random.default_rng(1)
    step = _resumed(life, fitted, average) if life.again else 0
    for _ in range(2 if life.again else 4):
        fitted.train(3.5)
        step += 500
        folder = life.folder / f"checkpoint-{step}"
        with life.save(folder, step=step) as row:
            for old in _newest_last(life.folder)[: -KEPT + 1]:
                shutil.rmtree(old)
            with row.part("write"):
                save_pretrained(folder / "unet", fitted.model.state_dict())
                save_pretrained(folder / "unet_ema", average.state_dict())
                torch.save(fitted.optimizer.state_dict(), folder / "optimizer.bin")
                torch.save({"last_epoch": step}, folder / "scheduler.bin")
                states = (step, random.getstate(), generator.bit_generator.state, torch.get_rng_state())
                (folder / "random_states_0.pkl").write_bytes(pickle.dumps(states))
    fitted.train(1.5)
    if not life.again:
        life.start_again()


if __name__ == "__main__":
    main()
