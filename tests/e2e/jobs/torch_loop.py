"""A PyTorch model that learns: the part that the jobs of its frameworks share."""

from __future__ import annotations

from typing import Any

import torch
from life import width


def torch_model(size_mb: float) -> Any:
    """Return a PyTorch model whose checkpoint, with Adam's moments, has about so many megabytes."""
    torch.manual_seed(1)
    side = width(size_mb)
    return torch.nn.Sequential(torch.nn.Linear(side, side), torch.nn.ReLU(), torch.nn.Linear(side, side))


class Loop:
    """A PyTorch model, Adam and the step they are at."""

    def __init__(self, size_mb: float) -> None:
        """Make a model whose checkpoint has about so many megabytes."""
        torch.set_num_threads(1)
        self.model = torch_model(size_mb)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4)
        self.inputs = torch.randn(4, self.model[0].in_features)
        self.step = 0

    def learn(self) -> None:
        """Take one step."""
        loss = self.model(self.inputs).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.step += 1
