"""Libraries of 2025 and 2026 that write or read checkpoints of PyTorch: each by its own call, on a CPU."""

from __future__ import annotations

import importlib
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from life import Logbook, Options, options, train
from safetensors.torch import save_file
from torch_loop import Loop

FRAMEWORKS = {
    "checkpointing": "torch.save", "checkpointing-async": "torch.save", "tensorizer": "tensorizer",
    "fastsafetensors": "safetensors", "runai": "safetensors",
}  # fmt: skip
MODULES = {
    "checkpointing": (), "checkpointing-async": (), "tensorizer": ("tensorizer",),
    "fastsafetensors": ("fastsafetensors", "fastsafetensors.saver"), "runai": ("runai_model_streamer",),
}  # fmt: skip


def manager(*, is_async: bool) -> Any:
    """Return torch_checkpointing's manager; its default O_DIRECT fails on ext4 and XFS in 0.1.1."""
    from torch_checkpointing.checkpoint_manager import CheckpointManager  # noqa: PLC0415 # one library of five
    from torch_checkpointing.config import AsyncCheckpointSaverConfig, SyncCheckpointSaverConfig  # noqa: PLC0415
    from torch_checkpointing.staging import CheckpointStagerConfig  # noqa: PLC0415
    from torch_checkpointing.storage.filesystem import LocalFileSystemStorageConfig  # noqa: PLC0415

    stager = CheckpointStagerConfig(use_pinned_memory=False, use_non_blocking_copy=False)
    save = AsyncCheckpointSaverConfig(staging_config=stager) if is_async else SyncCheckpointSaverConfig()
    storage = LocalFileSystemStorageConfig(use_direct_io=False)
    return CheckpointManager(CheckpointManager.Config(save=save, storage_config=storage))


def tensors(loop: Loop) -> dict[str, torch.Tensor]:
    """Return parameters and moments by name."""
    found = dict(loop.model.state_dict())
    for name, parameter in loop.model.named_parameters():
        found |= {f"{name}.{moment}": value for moment, value in loop.optimizer.state[parameter].items()}
    return found


def write(loop: Loop, path: Path, variant: str) -> None:
    """Write by the library, where it writes."""
    if variant == "tensorizer":
        from tensorizer import TensorSerializer  # noqa: PLC0415

        writer = TensorSerializer(str(path))
        writer.write_state_dict(tensors(loop))
        writer.close()
    elif variant == "fastsafetensors":
        from fastsafetensors.saver import WriteEntry, save_sharded  # noqa: PLC0415
        from fastsafetensors.st_types import DType  # noqa: PLC0415

        path.mkdir()
        found = {name: one for name, one in tensors(loop).items() if one.dim()}
        entries = [WriteEntry(name, DType.F32, list(one.shape), one.nbytes, source=one) for name, one in found.items()]
        save_sharded(entries, str(path / "model"), num_shards=4)
    else:
        save_file(tensors(loop), path)


def read(path: Path, variant: str) -> dict[str, torch.Tensor]:
    """Read by the library."""
    if variant == "tensorizer":
        from tensorizer import TensorDeserializer  # noqa: PLC0415

        return dict(TensorDeserializer(str(path), device="cpu"))
    if variant == "fastsafetensors":
        from fastsafetensors import SafeTensorsFileLoader, SingleGroup  # noqa: PLC0415

        loader = SafeTensorsFileLoader(SingleGroup(), torch.device("cpu"), nogds=True)
        loader.add_filenames({0: sorted(map(str, path.iterdir()))})
        buffer = loader.copy_files_to_device()
        return {name: buffer.get_tensor(name).clone() for name in buffer.key_to_rank_lidx}
    from runai_model_streamer import SafetensorsStreamer  # noqa: PLC0415

    with SafetensorsStreamer() as streamer:
        streamer.stream_file(str(path))
        return {name: one.clone() for name, one in streamer.get_tensors()}


def finish(book: Logbook, step: int, path: Path, start_ns: int, stall_ns: int, _: object) -> None:
    """Log a save that is complete."""
    book.add("save", step, path, start_ns, time.time_ns(), stall_ns=stall_ns)


def manage(loop: Loop, told: Options, book: Logbook) -> None:
    """Save and restore by torch_checkpointing."""
    is_async = told.variant.endswith("async")
    saver = manager(is_async=is_async)
    if told.resume:
        path = max(told.dir.iterdir())
        loop.step = int(path.name.split("_")[1])
        into = {"model": loop.model.state_dict(), "optimizer": loop.optimizer.state_dict(), "step": 0}
        with book.timed("restore", loop.step, path):
            saver.load(str(path), into=into)
    for _ in range(told.saves):
        train(loop.learn, told)
        path, step = told.dir / f"step_{loop.step:06d}", loop.step
        state = {"model": loop.model.state_dict(), "optimizer": loop.optimizer.state_dict(), "step": loop.step}
        start_ns = time.time_ns()
        written = saver.save(str(path), state)
        stall_ns = time.time_ns() - start_ns
        if written is None:
            book.add("save", step, path, start_ns, start_ns + stall_ns)
            continue
        written.add_done_callback(partial(finish, book, step, path, start_ns, stall_ns))
        train(loop.learn, told)
        written.result()
    saver.close()


def main() -> None:
    """Save some times, or restore once and go on."""
    told = options(*FRAMEWORKS)
    book = Logbook(told, FRAMEWORKS[told.variant], mode="async" if told.variant.endswith("async") else "sync")
    loop = Loop(told.size_mb)
    loop.learn()
    for name in MODULES[told.variant]:  # not within the times that are logged
        importlib.import_module(name)
    if told.variant.startswith("checkpointing"):
        manage(loop, told, book)
        return
    if told.resume:
        path = max(told.dir.iterdir())
        loop.step = int(path.stem.split("_")[1])
        with book.timed("restore", loop.step, path):
            read(path, told.variant)
    suffix = {"tensorizer": ".tensors", "fastsafetensors": "", "runai": ".safetensors"}[told.variant]
    for _ in range(told.saves):
        train(loop.learn, told)
        path = told.dir / f"step_{loop.step:06d}{suffix}"
        with book.timed("save", loop.step, path):
            write(loop, path, told.variant)


if __name__ == "__main__":
    main()
