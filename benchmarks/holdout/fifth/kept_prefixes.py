"""A model serves long prompts; keys and values of prefixes go to disk as `.pt`, and come back for who asks again.

The oldest are deleted. It saves nothing, and restores nothing but once, at its start, its weights.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from fitted import Fitted
from lives import Life, until

PREFIXES, CHUNKS, KEPT, NUMBERS = 12, 4, 32, 500_000


def main() -> None:
    """Load the weights, and answer."""
    life, fitted = Life(__doc__), Fitted(6)
    weights = life.folder / "model/pytorch_model.bin"
    if life.prepare:
        weights.parent.mkdir(parents=True, exist_ok=True)
        torch.save(fitted.model.state_dict(), weights)
        return
    fitted.train(2)
    with life.restore(weights) as row, row.part("read"):
        fitted.model.load_state_dict(torch.load(weights))
    cache = life.folder / "kv_cache"
    cache.mkdir()
    random = np.random.default_rng(1)

    def answer() -> None:
        with torch.no_grad():
            fitted.model(torch.randn(8, 1024))

    for _ in range(30):
        prefix = int(random.integers(PREFIXES))
        for chunk in range(CHUNKS):
            name = hashlib.sha256(f"{prefix}:{chunk}".encode()).hexdigest()[:24]
            path = cache / f"vllm@llama@1@0@{name}.pt"
            if path.exists():
                torch.load(path)
                continue
            until(0.1, answer)
            torch.save(torch.randn(2, NUMBERS), path)
        until(0.5, answer)
        for old in sorted(cache.iterdir(), key=lambda one: one.stat().st_mtime)[:-KEPT]:
            old.unlink()


if __name__ == "__main__":
    main()
