"""As ZeRO-Infinity: weights and optimizer states are swapped in and out in every step; it saves, too."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import torch
from fitted import Fitted
from lives import Life

STATES = ("fp32", "exp_avg", "exp_avg_sq")
LAYER_BYTES = 4 << 20


class Swap:
    """One file for each state of each layer, read and written past the page cache where that can be."""

    def __init__(self, folder: Path, layers: int) -> None:
        """Make the files; all have the same size from then on."""
        folder.mkdir(parents=True)
        self.paths = [folder / f"{layer}_{state}.tensor.swp" for layer in range(layers) for state in STATES]
        self.buffer = mmap.mmap(-1, LAYER_BYTES)
        self.tensor = torch.frombuffer(self.buffer, dtype=torch.float32)
        for path in self.paths:
            self.move(path, writes=True)

    def move(self, path: Path, *, writes: bool) -> None:
        """Write the buffer to a file, or read it."""
        try:
            opened = os.open(path, os.O_CREAT | os.O_RDWR | os.O_DIRECT, 0o644)
        except OSError:  # tmpfs
            opened = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
        for at in range(0, LAYER_BYTES, 1 << 20):
            part = memoryview(self.buffer)[at : at + (1 << 20)]
            if writes:
                os.pwrite(opened, part, at)
            else:
                os.preadv(opened, [part], at)
        os.close(opened)

    def step(self) -> None:
        """Take each state in, change it, and put it back."""
        for path in self.paths:
            self.move(path, writes=False)
            self.tensor.mul_(0.999)
            self.move(path, writes=True)


def main() -> None:
    """Train with a swap in each of 24 steps, save after every eighth."""
    life, fitted = Life(__doc__), Fitted(8)
    swap = Swap(life.folder.parent / "nvme/zero_stage_3/optimizer/rank0", 8)
    for step in range(1, 25):
        fitted.train(0.3)
        swap.step()
        if step % 8:
            continue
        folder = life.folder / f"global_step{step}"
        with life.save(folder, step=step) as row, row.part("write"):
            folder.mkdir()
            torch.save({"module": fitted.model.state_dict()}, folder / "mp_rank_00_model_states.pt")
            states = {"optimizer_state_dict": fitted.optimizer.state_dict()}
            torch.save(states, folder / "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt")
            (life.folder / "latest").write_text(folder.name)
    fitted.train(1)


if __name__ == "__main__":
    main()
