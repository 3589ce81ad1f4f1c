"""As Stable-Baselines3: a zip of policy, optimizer and JSON, and the replay buffer, pickled; both are loaded again."""

from __future__ import annotations

import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import torch
from fitted import Fitted
from lives import Life, until

CAPACITY, OBSERVED = 8000, 1024


class Buffer:
    """What the agent has seen, in arrays of a fixed size."""

    def __init__(self) -> None:
        """Begin empty."""
        self.observations = np.zeros((CAPACITY, OBSERVED), np.float32)
        self.next_observations = np.zeros((CAPACITY, OBSERVED), np.float32)
        self.rewards = np.zeros(CAPACITY, np.float32)
        self.at = 0

    def add(self, seen: np.ndarray) -> None:
        """Keep some transitions over the oldest."""
        rows = np.arange(self.at, self.at + len(seen)) % CAPACITY
        self.observations[rows] = seen
        self.next_observations[rows] = seen + 1
        self.at = (self.at + len(seen)) % CAPACITY


def zipped(path: Path, fitted: Fitted) -> None:
    """Write the archive."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data", json.dumps({"policy_class": "MlpPolicy", "learning_rate": 3e-4, "n_envs": 4}))
        for name, one in (("policy", fitted.model), ("policy.optimizer", fitted.optimizer)):
            with archive.open(f"{name}.pth", "w", force_zip64=True) as file:
                torch.save(one.state_dict(), file)
        archive.writestr("_stable_baselines3_version", "2.3.2")


def unzipped(path: Path, fitted: Fitted) -> None:
    """Read it."""
    with zipfile.ZipFile(path) as archive:
        for name, one in (("policy", fitted.model), ("policy.optimizer", fitted.optimizer)):
            with archive.open(f"{name}.pth") as file:
                one.load_state_dict(torch.load(file))


def main() -> None:
    """Act and learn in two lives."""
    life, fitted, buffer = Life(__doc__), Fitted(3), Buffer()
    random = np.random.default_rng(1)

    def step() -> None:
        seen = random.standard_normal((64, OBSERVED), dtype=np.float32)
        with torch.no_grad():
            fitted.model(torch.from_numpy(seen))
        buffer.add(seen)
        fitted.step(torch.from_numpy(buffer.observations[random.integers(CAPACITY, size=8)]))

    def names(steps: int) -> tuple[Path, Path]:
        return (
            life.folder / f"rl_model_{steps}_steps.zip",
            life.folder / f"rl_model_replay_buffer_{steps}_steps.pkl",
        )

    steps = 0
    if life.again:
        steps = 40_000
        policy, replay = names(steps)
        with life.restore(policy, replay, step=steps) as row, row.part("read"):
            unzipped(policy, fitted)
            with replay.open("rb") as file:
                buffer = pickle.load(file)  # noqa: S301 - our own
    for _ in range(2 if life.again else 4):
        until(3.5, step)
        steps += 10_000
        policy, replay = names(steps)
        with life.save(policy, replay, step=steps) as row, row.part("write"):
            zipped(policy, fitted)
            with replay.open("wb") as file:
                pickle.dump(buffer, file, protocol=pickle.HIGHEST_PROTOCOL)
    fitted.train(1.5)
    if not life.again:
        life.start_again()


if __name__ == "__main__":
    main()
