"""Saves or loads one checkpoint as a framework does: `frameworks_program.py WHAT DIRECTORY`."""

from __future__ import annotations

import importlib
import json
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def arrays() -> dict[str, Any]:
    """Return 11 MiB of state in parts of many sizes."""
    generator = np.random.default_rng(1)
    return {f"layer.{number}": generator.random((1 << number) + 3) for number in range(0, 22, 2)}


def tensors() -> dict[str, Any]:
    """Return the same as tensors."""
    import torch  # noqa: PLC0415 - seconds, and only some need it

    return {name: torch.from_numpy(array) for name, array in arrays().items()}


def torch_save_path(place: Path) -> None:
    """Save to a path: libtorch writes the zip file itself."""
    import torch  # noqa: PLC0415

    torch.save(tensors(), place / "model.pt")


def torch_save_file(place: Path) -> None:
    """Save to a file object."""
    import torch  # noqa: PLC0415

    with (place / "model.pt").open("wb") as file:
        torch.save(tensors(), file)


def torch_save_legacy(place: Path) -> None:
    """Save in the format before zip."""
    import torch  # noqa: PLC0415

    torch.save(tensors(), place / "model.pt", _use_new_zipfile_serialization=False)


def torch_load(place: Path) -> None:
    """Load what torch_save_path saved."""
    import torch  # noqa: PLC0415

    assert len(torch.load(place / "model.pt", weights_only=True)) == 11


def torch_load_mapped(place: Path) -> None:
    """Load by mmap, and touch every tensor."""
    import torch  # noqa: PLC0415

    state = torch.load(place / "model.pt", weights_only=True, mmap=True)
    assert sum(float(tensor.sum()) for tensor in state.values()) > 0


def dcp_save(place: Path) -> None:
    """Save with torch.distributed.checkpoint, as one process."""
    from torch.distributed.checkpoint.state_dict_saver import save  # noqa: PLC0415

    save(tensors(), checkpoint_id=place / "dcp", no_dist=True)


def dcp_load(place: Path) -> None:
    """Load it again."""
    from torch.distributed.checkpoint.state_dict_loader import load  # noqa: PLC0415

    load(tensors(), checkpoint_id=place / "dcp", no_dist=True)


def safetensors_save(place: Path) -> None:
    """Save with safetensors: by a temporary file and a rename."""
    from safetensors.torch import save_file  # noqa: PLC0415

    save_file(tensors(), place / "model.safetensors")


def safetensors_load(place: Path) -> None:
    """Load with safetensors: by mmap."""
    from safetensors.torch import load_file  # noqa: PLC0415

    assert sum(float(tensor.sum()) for tensor in load_file(place / "model.safetensors").values()) > 0


def numpy_save(place: Path) -> None:
    """Save an array, and all of them as .npz."""
    np.save(place / "array.npy", arrays()["layer.18"])
    np.savez(place / "arrays.npz", **arrays())


def numpy_load(place: Path) -> None:
    """Load both."""
    assert np.load(place / "array.npy").size > 0
    with np.load(place / "arrays.npz") as found:
        assert sum(found[name].size for name in found) > 0


def pickled_save(place: Path) -> None:
    """Save by pickle and JSON."""
    with (place / "state.pkl").open("wb") as file:
        pickle.dump(arrays(), file, protocol=5)
    with (place / "state.json").open("w") as file:
        json.dump({name: array.tolist()[:5000] for name, array in arrays().items()}, file)


def pickled_load(place: Path) -> None:
    """Load both."""
    with (place / "state.pkl").open("rb") as file:
        assert pickle.load(file)  # noqa: S301 - it is ours
    with (place / "state.json").open() as file:
        assert json.load(file)


def orbax_save(place: Path) -> None:
    """Save with Orbax: tensorstore's threads write, and the folder is renamed at the end."""
    ocp = importlib.import_module("orbax.checkpoint")
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(place / "orbax", arrays())


def orbax_load(place: Path) -> None:
    """Load it again."""
    ocp = importlib.import_module("orbax.checkpoint")
    with ocp.PyTreeCheckpointer() as checkpointer:
        assert len(checkpointer.restore(place / "orbax")) == 11


SCENARIOS: dict[str, Callable[[Path], None]] = {
    scenario.__name__: scenario
    for scenario in (
        torch_save_path, torch_save_file, torch_save_legacy, torch_load, torch_load_mapped, dcp_save, dcp_load,
        safetensors_save, safetensors_load, numpy_save, numpy_load, pickled_save, pickled_load, orbax_save,
        orbax_load,
    )
}  # fmt: skip


if __name__ == "__main__":
    SCENARIOS[sys.argv[1]](Path(sys.argv[2]))
