"""The network that jobs of PyTorch fit, alone or as ranks, and how they go on from a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from frame import Life, until
from torch import distributed


class Fitted:
    """A network of layers of 4 MB, and its optimizer, which has twice that."""

    def __init__(self, layers: int) -> None:
        torch.set_num_threads(1)
        self.model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(layers)])
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.step()  # so that the optimizer has its state

    def step(self, batch: torch.Tensor | None = None) -> None:
        """Fit one batch, of noise if it is not given."""
        self.model(torch.randn(8, 1024) if batch is None else batch).square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def train(self, seconds: float) -> None:
        """Fit for so long."""
        until(seconds, self.step)

    def train_together(self, steps: int, numbers: int = 1, *, waits: bool = True) -> None:
        """Take so many steps, after each of which all ranks agree; then they wait for each other."""
        for _ in range(steps):
            self.step()
            distributed.all_reduce(torch.ones(numbers))
        if waits:
            distributed.barrier()

    def state(self, **more: object) -> dict[str, Any]:
        """Return what a restart needs."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), **more}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from it."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])


def resumed(life: Life, fitted: Fitted, path: Path, **how: Any) -> dict[str, Any]:
    """Load the state of a file, and log that; return it."""
    with life.restore(path, part="read"):
        state: dict[str, Any] = torch.load(path, **how)
        fitted.load(state)
    return state
