"""The network that the habits of PyTorch fit."""

from __future__ import annotations

from typing import Any

import torch
from lives import until


class Fitted:
    """A network of layers of 4 MB, and its optimizer, which has twice that."""

    def __init__(self, layers: int) -> None:
        """Take one step, so that the optimizer has its state."""
        torch.set_num_threads(1)
        self.model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(layers)])
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.step()

    def step(self, batch: torch.Tensor | None = None) -> None:
        """Fit one batch, of noise if it is not given."""
        self.model(torch.randn(8, 1024) if batch is None else batch).square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def train(self, seconds: float) -> None:
        """Fit for so long."""
        until(seconds, self.step)

    def state(self, **more: object) -> dict[str, Any]:
        """Return what a restart needs."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), **more}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from it."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
