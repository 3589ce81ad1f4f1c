"""An adapter of 10 MB is saved often, and all at each fifth time; four workers read shards all the time."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import torch
from fitted import Fitted
from lives import Life, until
from safetensors.torch import save_file
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SHARDS, SHARD_BYTES, BATCH_BYTES = 12, 25 << 20, 8 * 1024 * 4


class Shards(IterableDataset[torch.Tensor]):
    """Samples of shards, each of which is read as a whole."""

    def __init__(self, life: Life) -> None:
        """Make them."""
        self.paths = [life.folder.parent / f"data/train-{at:05d}-of-{SHARDS:05d}.bin" for at in range(SHARDS)]
        self.paths[0].parent.mkdir(exist_ok=True)
        random = np.random.default_rng(1)
        for path in self.paths:
            path.write_bytes(random.standard_normal(SHARD_BYTES // 4, dtype=np.float32).tobytes())

    def __iter__(self) -> Iterator[torch.Tensor]:
        """Yield batches without end."""
        worker = get_worker_info()
        while True:
            for path in self.paths[worker.id :: worker.num_workers] if worker else self.paths:
                blob = path.read_bytes()
                for at in range(0, len(blob), 40 * BATCH_BYTES):
                    yield torch.frombuffer(bytearray(blob[at : at + BATCH_BYTES]), dtype=torch.float32).view(8, 1024)


def main() -> None:
    """Train, save ten times."""
    life, fitted = Life(__doc__), Fitted(7)
    batches = iter(DataLoader(Shards(life), batch_size=None, num_workers=4))
    adapter = {f"base_model.layers.{at}.lora_{of}": torch.randn(320, 1024) for at in range(4) for of in "AB"}
    for turn in range(1, 11):
        until(2.5, lambda: fitted.step(next(batches)))
        folder = life.folder / f"checkpoint-{turn * 50}"
        with life.save(folder, step=turn * 50) as row, row.part("write"):
            folder.mkdir()
            save_file(adapter, folder / "adapter_model.safetensors")
            (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 320}))
            if turn % 5 == 0:
                torch.save(fitted.state(global_step=turn * 50), folder / "full_state.pt")
    until(1.5, lambda: fitted.step(next(batches)))


if __name__ == "__main__":
    main()
