"""Early stopping: what improves is saved over the last best; when nothing does, the best is loaded, and tested."""

from __future__ import annotations

import numpy as np
import torch
from fitted import Fitted
from lives import Life


def main() -> None:
    """Train seven epochs, of which three improve; then go back to the best."""
    life, fitted = Life(__doc__), Fitted(24)
    path = life.folder / "checkpoint.pt"
    for loss in (0.9, 0.7, 0.8, 0.5, 0.6, 0.6, 0.55):
        fitted.train(2)
        if loss in {0.9, 0.7, 0.5}:
            with life.save(path) as row, row.part("write"):
                torch.save(fitted.model.state_dict(), path)
    with life.restore(path) as row, row.part("read"):
        fitted.model.load_state_dict(torch.load(path))
    with torch.no_grad():
        tested = [fitted.model(torch.randn(8, 1024)) for _ in range(150)]
    np.save(life.folder / "predictions.npy", torch.cat(tested).numpy())
    fitted.train(1)


if __name__ == "__main__":
    main()
