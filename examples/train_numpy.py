"""Train a small network with numpy alone, and save and restore real checkpoints of it.

A multi-layer perceptron learns a random teacher by real gradient steps with Adam; what is saved is what such a job
saves, parameters and both moments. Run it under `ckptprof run -- python examples/train_numpy.py --dir DIR`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save_file

from job import run

Array = npt.NDArray[np.float32]
INPUTS, OUTPUTS, BATCH = 64, 8, 16
BYTES_PER_PARAMETER = 12  # float32, and Adam's two moments
SUFFIXES = {"npz": ".npz", "npy": "", "safetensors": ".safetensors", "deflated": ".npz"}  # npy is a folder of files


class Network:
    """A perceptron of three equal hidden layers; its state is what a checkpoint holds."""

    def __init__(self, size_mb: float) -> None:
        """Choose the width so that a checkpoint has about `size_mb` megabytes."""
        parameters = size_mb * 1e6 / BYTES_PER_PARAMETER
        side = INPUTS + OUTPUTS
        width = max(8, int((-side + (side**2 + 8 * parameters) ** 0.5) / 4))  # of 2 width^2 + side width
        random = np.random.default_rng(1)
        shapes = [(INPUTS, width), (width, width), (width, width), (width, OUTPUTS)]
        self.weights: list[Array] = [
            random.standard_normal(shape, dtype=np.float32) / np.float32(shape[0] ** 0.5) for shape in shapes
        ]
        self.means: list[Array] = [np.zeros_like(weight) for weight in self.weights]
        self.variances: list[Array] = [np.zeros_like(weight) for weight in self.weights]
        self.step = 0
        self._random = random
        self._teacher: Array = random.standard_normal((INPUTS, OUTPUTS), dtype=np.float32)

    def learn(self) -> float:
        """Take one step of Adam and return the loss before it."""
        inputs = self._random.standard_normal((BATCH, INPUTS), dtype=np.float32)
        targets = np.tanh(inputs @ self._teacher)
        activations = [inputs]
        for weight in self.weights[:-1]:
            activations.append(np.maximum(activations[-1] @ weight, 0))
        error = activations[-1] @ self.weights[-1] - targets
        gradient = (2 / error.size) * error
        self.step += 1
        for layer in reversed(range(len(self.weights))):
            gradient_of_weight = activations[layer].T @ gradient
            gradient = (gradient @ self.weights[layer].T) * (activations[layer] > 0)
            self._adam(layer, gradient_of_weight)
        return float(np.mean(error**2))

    def _adam(self, layer: int, gradient: Array) -> None:
        mean, variance = self.means[layer], self.variances[layer]
        mean *= 0.9
        mean += 0.1 * gradient
        variance *= 0.99
        np.multiply(gradient, gradient, out=gradient)
        variance += 0.01 * gradient
        rate = 3e-4 * (1 - 0.99**self.step) ** 0.5 / (1 - 0.9**self.step)
        np.sqrt(variance, out=gradient)
        gradient += 1e-8
        np.divide(mean, gradient, out=gradient)
        self.weights[layer] -= rate * gradient

    def state(self) -> dict[str, Array]:
        """Return the arrays of the network by name; they are the network's own, not copies."""
        groups = {"weight": self.weights, "mean": self.means, "variance": self.variances}
        return {f"layer{i}.{name}": array for name, arrays in groups.items() for i, array in enumerate(arrays)}

    def load(self, arrays: dict[str, Array]) -> None:
        """Copy a checkpoint into the network; raises KeyError and ValueError if it is one of another network."""
        for name, array in self.state().items():
            np.copyto(array, arrays[name])

    def write(self, path: Path, format_: str) -> None:
        """Save the state in one of the formats."""
        if format_ in ("npz", "deflated"):
            save = np.savez if format_ == "npz" else np.savez_compressed  # zlib: 20 MB/s
            save(path, allow_pickle=False, **self.state())
        elif format_ == "safetensors":
            save_file(self.state(), path)
        else:
            path.mkdir()
            for name, array in self.state().items():
                np.save(path / f"{name}.npy", array)

    def read(self, path: Path, format_: str) -> None:
        """Restore what `write` wrote."""
        if format_ in ("npz", "deflated"):
            with np.load(path) as archive:
                self.load({name: archive[name] for name in archive.files})
        elif format_ == "safetensors":
            self.load(load_file(path))
        else:
            self.load({entry.stem: np.load(entry) for entry in path.iterdir()})


if __name__ == "__main__":
    run(Network, SUFFIXES, __doc__)
