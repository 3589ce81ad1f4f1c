"""Lightning's ModelCheckpoint with `last.ckpt`: staged in $TMPDIR, of the same file system or of another.

Lightning serialises a checkpoint in memory before it opens a file, so a save begins when it asks for the file system.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec.core
import torch
from life import Logbook, options
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch_loop import torch_model

STEPS = 4


class Model(LightningModule):
    """Two layers that learn at the pace of a large model."""

    def __init__(self, size_mb: float, seconds: float) -> None:
        """Take so many seconds for a step."""
        super().__init__()
        self.seconds = seconds
        self.layers = torch_model(size_mb)

    def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
        """Return the loss."""
        end = time.monotonic() + self.seconds
        while time.monotonic() < end:
            loss = self.layers(batch).square().mean()
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return Adam."""
        return torch.optim.Adam(self.parameters(), lr=1e-4)


class Timed(ModelCheckpoint):
    """A ModelCheckpoint that logs: the file of a step and `last.ckpt` are one save, named by the former."""

    book: Logbook
    opened: list[int]  # when each of the files was asked for

    def on_train_batch_end(self, trainer: Any, *arguments: Any, **named: Any) -> None:
        """Save if it is time."""
        self.opened.clear()
        before = self._last_global_step_saved
        super().on_train_batch_end(trainer, *arguments, **named)
        step = trainer.global_step
        if self._last_global_step_saved != before:
            files = [
                path
                for path in self.book.told.dir.glob("*.ckpt")
                if path.name == "last.ckpt" or f"={step}." in path.name
            ]
            size = sum(path.stat().st_size for path in files)
            own = next(path for path in files if path.name != "last.ckpt")
            self.book.add("save", step, own, self.opened[0], time.time_ns(), size=lambda: size)


class TimedRestore(TorchCheckpointIO):
    """Logs what is loaded."""

    book: Logbook

    def load_checkpoint(self, path: Any, *arguments: Any, **named: Any) -> dict[str, Any]:
        """Load it; the step is not in the name of `last.ckpt`."""
        start_ns = time.time_ns()
        checkpoint = super().load_checkpoint(path, *arguments, **named)
        self.book.add("restore", checkpoint["global_step"], Path(path), start_ns, time.time_ns())
        return checkpoint


def main() -> None:
    """Train to the third checkpoint, or resume from the newest."""
    warnings.filterwarnings("ignore")
    told = options("renamed", "moved")
    if told.variant == "moved":
        tempfile.tempdir = "/dev/shm"
    torch.set_num_threads(1)
    book = Logbook(told, "lightning")
    callback = Timed(dirpath=told.dir, every_n_train_steps=STEPS, save_last=True, save_top_k=-1)
    reader = TimedRestore()
    callback.book, reader.book, callback.opened = book, book, []
    fsspec.core.url_to_fs = noting(fsspec.core.url_to_fs, callback.opened)
    newest = max(told.dir.glob("epoch*.ckpt"), key=step_of) if told.resume else None
    before = step_of(newest) if newest else 0
    trainer = Trainer(
        max_steps=before + max(1, STEPS * told.saves),
        callbacks=[callback] if told.saves else [],
        enable_checkpointing=told.saves > 0,  # else it saves `last.ckpt` at the end
        plugins=[reader],
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=told.dir,
    )
    model = Model(told.size_mb, told.interval / STEPS)
    batches = torch.utils.data.DataLoader(torch.randn(400, model.layers[0].in_features), batch_size=4)
    trainer.fit(model, batches, ckpt_path=newest)


def noting(call: Callable[..., Any], times: list[int]) -> Callable[..., Any]:
    """Return the call such that it notes when it is made."""

    def noted(*arguments: Any, **named: Any) -> Any:
        times.append(time.time_ns())
        return call(*arguments, **named)

    return noted


def step_of(path: Path) -> int:
    """Return the step in a name."""
    return int(path.stem.rpartition("=")[2])


if __name__ == "__main__":
    main()
