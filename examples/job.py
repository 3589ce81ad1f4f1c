"""The part of a training job that is the same for every library: train, save now and then, resume after a restart."""

from __future__ import annotations

import argparse
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from truth import TruthLog


class Trainer(Protocol):
    """A model and its optimizer, made of nothing but the size that its checkpoint shall have."""

    step: int

    def learn(self) -> float:
        """Take one step of training and return the loss."""
        ...

    def write(self, path: Path, format_: str) -> None:
        """Save parameters and optimizer."""
        ...

    def read(self, path: Path, format_: str) -> None:
        """Load parameters and optimizer into the model."""
        ...


def newest(directory: Path) -> Path:
    """Return the checkpoint with the highest step; raises SystemExit if there is none."""
    found = sorted(directory.glob("ckpt_*"))
    if not found:
        raise SystemExit(f"{directory}: no checkpoint to resume from")
    return found[-1]


def remove_all_but(directory: Path, keep: int) -> None:
    """Delete the oldest checkpoints, as jobs do, so that a long run does not fill the disk."""
    for old in sorted(directory.glob("ckpt_*"))[:-keep]:
        if old.is_dir():
            shutil.rmtree(old)
        else:
            old.unlink()


def run(make: Callable[[float], Trainer], suffixes: Mapping[str, str], description: str | None) -> None:
    """Parse the command line, restore if requested, then train and save."""
    options = _parse(suffixes, description)
    options.dir.mkdir(parents=True, exist_ok=True)
    log = TruthLog(options.truth)
    trainer = make(options.size_mb)
    if options.resume:
        trainer.learn()  # an optimizer has moments to load into only when it has stepped
        path = newest(options.dir)
        trainer.step = int(path.stem.split("_")[1])
        with log.event("restore", step=trainer.step, path=path, format_=options.format):
            trainer.read(path, options.format)
    for number in range(1, options.saves + 1):
        format_ = options.slow_format if number == options.slow_save else options.format
        _train(trainer, options.steps_between, options.interval)
        path = options.dir / f"ckpt_{trainer.step:08d}{suffixes[format_]}"
        with log.event("save", step=trainer.step, path=path, format_=format_):
            trainer.write(path, format_)
            if options.sync:
                _sync(path)
        remove_all_but(options.dir, options.keep)


def _sync(path: Path) -> None:
    for file in [path] if path.is_file() else path.iterdir():
        with file.open("rb") as stream:
            os.fsync(stream.fileno())


def _train(trainer: Trainer, steps: int, seconds: float) -> None:
    """Train for so many steps and so many seconds, whichever is longer."""
    first_step, start, loss = trainer.step, time.monotonic(), float("nan")
    while trainer.step < first_step + steps or time.monotonic() < start + seconds:
        loss = trainer.learn()
    print(f"step {trainer.step}: loss {loss:.4f}", flush=True)


def _parse(suffixes: Mapping[str, str], description: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, required=True, help="where the checkpoints go")
    parser.add_argument("--format", choices=tuple(suffixes), default=next(iter(suffixes)))
    parser.add_argument("--slow-save", type=int, help="number of a save to write in --slow-format: a planted fault")
    parser.add_argument("--slow-format", choices=tuple(suffixes), default=list(suffixes)[-1])
    parser.add_argument("--saves", type=int, default=3)
    parser.add_argument("--size-mb", type=float, default=256, help="megabytes of one checkpoint, about")
    parser.add_argument("--steps-between", type=int, default=3, help="training steps between two saves, at least")
    parser.add_argument("--interval", type=float, default=2.0, help="seconds of training between two saves, at least")
    parser.add_argument("--sync", action="store_true", help="fsync each checkpoint")
    parser.add_argument("--resume", action="store_true", help="restore the newest checkpoint first")
    parser.add_argument("--keep", type=int, default=2, help="how many checkpoints stay on disk")
    parser.add_argument("--truth", type=Path, help="log every save and restore here as JSON lines")
    return parser.parse_args()
