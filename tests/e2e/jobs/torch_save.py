"""torch.save and torch.load: zip files, the format before them, and a file object in front of pickle or joblib."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import joblib
import torch
from life import Logbook, options, train
from safetensors.torch import load_file, save_file
from torch_loop import Loop

FRAMEWORKS = {"zip": "torch.save", "legacy": "torch.save", "safetensors": "safetensors", "joblib": "pickle"}
SUFFIXES = {"zip": ".pt", "legacy": ".pt", "safetensors": ".safetensors", "pickle": ".pkl", "joblib": ".joblib"}


def flat(loop: Loop) -> dict[str, torch.Tensor]:
    """Return parameters and moments by name."""
    tensors = dict(loop.model.state_dict())
    for name, parameter in loop.model.named_parameters():
        tensors |= {f"{name}.{moment}": value for moment, value in loop.optimizer.state[parameter].items()}
    return tensors


def save(loop: Loop, path: Path, variant: str) -> None:
    """Save in one of the formats."""
    state: Any = {"model": loop.model.state_dict(), "optimizer": loop.optimizer.state_dict(), "step": loop.step}
    if variant == "safetensors":
        save_file(flat(loop), path)
    elif variant in ("pickle", "joblib"):
        arrays = {name: tensor.numpy() for name, tensor in flat(loop).items()}
        if variant == "joblib":
            joblib.dump(arrays, path)
        else:
            with path.open("wb") as stream:
                pickle.dump(arrays, stream, protocol=5)
    else:
        torch.save(state, path, _use_new_zipfile_serialization=variant == "zip")


def load(path: Path, variant: str) -> Any:
    """Return what `save` wrote; of a mapped file each tensor is copied, since that is when it is read."""
    if variant == "safetensors":
        return {name: tensor.clone() for name, tensor in load_file(path).items()}
    if variant == "joblib":
        return joblib.load(path)
    if variant == "pickle":
        with path.open("rb") as stream:
            return pickle.load(stream)
    return torch.load(path, weights_only=True)


def take(loop: Loop, state: Any) -> None:
    """Put what was loaded into the model and its optimizer."""
    if "optimizer" in state:
        loop.optimizer.load_state_dict(state["optimizer"])
        state = state["model"]
    with torch.no_grad():
        for name, tensor in loop.model.state_dict().items():
            tensor.copy_(torch.as_tensor(state[name]))


def main() -> None:
    """Save three times, or restore once and go on."""
    told = options(*SUFFIXES)
    book = Logbook(told, FRAMEWORKS.get(told.variant, told.variant))
    loop = Loop(told.size_mb)
    loop.learn()
    if told.resume:
        path = max(told.dir.iterdir())
        loop.step = int(path.stem.split("_")[1])
        with book.timed("restore", loop.step, path):
            state = load(path, told.variant)
        take(loop, state)
    for _ in range(told.saves):
        train(loop.learn, told)
        path = told.dir / f"step_{loop.step:06d}{SUFFIXES[told.variant]}"
        with book.timed("save", loop.step, path):
            save(loop, path, told.variant)


if __name__ == "__main__":
    main()
