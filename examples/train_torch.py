"""Train a small network with PyTorch, and save and restore real checkpoints of it.

The same job as train_numpy.py with PyTorch's own means: `torch.save`, distributed checkpoint (DCP, here of one rank)
or safetensors. Run it under `ckptprof run -- python examples/train_torch.py --dir DIR --format dcp`.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load as load_dcp
from torch.distributed.checkpoint.state_dict_saver import save as save_dcp

from job import run

INPUTS, OUTPUTS, BATCH = 64, 8, 16
BYTES_PER_PARAMETER = 12  # float32, and Adam's two moments
SUFFIXES = {"torch": ".pt", "dcp": "", "safetensors": ".safetensors"}
MOMENTS = ("exp_avg", "exp_avg_sq", "step")


class Trainer:
    """A model, its optimizer and the step they are at."""

    def __init__(self, size_mb: float) -> None:
        """Choose the width so that a checkpoint has about `size_mb` megabytes."""
        torch.manual_seed(1)
        parameters = size_mb * 1e6 / BYTES_PER_PARAMETER
        side = INPUTS + OUTPUTS
        width = max(8, int((-side + (side**2 + 8 * parameters) ** 0.5) / 4))  # of 2 width^2 + side width
        self.model = torch.nn.Sequential(
            torch.nn.Linear(INPUTS, width),
            torch.nn.ReLU(),
            torch.nn.Linear(width, width),
            torch.nn.ReLU(),
            torch.nn.Linear(width, width),
            torch.nn.ReLU(),
            torch.nn.Linear(width, OUTPUTS),
        )
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=3e-4)
        self.teacher = torch.randn(INPUTS, OUTPUTS)
        self.step = 0

    def learn(self) -> float:
        """Take one step of Adam and return the loss before it."""
        inputs = torch.randn(BATCH, INPUTS)
        loss = torch.nn.functional.mse_loss(self.model(inputs), torch.tanh(inputs @ self.teacher))
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call] # PyTorch leaves it untyped
        self.optimizer.step()
        self.step += 1
        return float(loss.detach())

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return parameters and moments by name, flat, as safetensors wants them; the optimizer must have stepped."""
        flat = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        for name, parameter in self.model.named_parameters():
            moments = self.optimizer.state[parameter]
            flat |= {f"optimizer.{name}.{moment}": moments[moment] for moment in MOMENTS}
        return flat

    def write(self, path: Path, format_: str) -> None:
        """Save the state in one of the formats."""
        if format_ == "torch":
            torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, path)
        elif format_ == "dcp":
            model, optimizer = get_state_dict(self.model, self.optimizer)
            save_dcp({"model": model, "optimizer": optimizer}, checkpoint_id=path)
        else:
            save_file(self.tensors(), path)

    def read(self, path: Path, format_: str) -> None:
        """Restore what `write` wrote."""
        if format_ == "torch":
            state = torch.load(path, weights_only=True)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
        elif format_ == "dcp":
            model, optimizer = get_state_dict(self.model, self.optimizer)
            into: dict[str, Any] = {"model": model, "optimizer": optimizer}
            load_dcp(into, checkpoint_id=path)
            set_state_dict(
                self.model, self.optimizer, model_state_dict=into["model"], optim_state_dict=into["optimizer"]
            )
        else:
            loaded = load_file(path)
            with torch.no_grad():
                for name, tensor in self.tensors().items():
                    tensor.copy_(loaded[name])


if __name__ == "__main__":
    # DCP says that it runs without a process group, and that its TypedStorage is old: neither is news here.
    warnings.filterwarnings("ignore", module="torch.*")
    run(Trainer, SUFFIXES, __doc__)
