"""After each epoch what the model says of the validation set is kept, for an ensemble; what improved is saved."""

from __future__ import annotations

import numpy as np
import torch
from fitted import Fitted
from lives import Life


def main() -> None:
    """Train six epochs, of which three improve."""
    life, fitted = Life(__doc__), Fitted(10)
    results = life.folder / "oof"
    results.mkdir()
    labels = np.random.default_rng(1).integers(0, 1024, 8000)
    for epoch, loss in enumerate((0.9, 0.7, 0.8, 0.6, 0.65, 0.61)):
        fitted.train(2.5)
        with torch.no_grad():
            logits = torch.cat([fitted.model(torch.randn(100, 1024)) for _ in range(80)]).numpy()
        np.savez(results / f"fold0_epoch{epoch}.npz", logits=logits, labels=labels)
        fitted.train(1)
        if loss in {0.9, 0.7, 0.6}:
            path = life.folder / "fold0_best.pth"
            with life.save(path) as row, row.part("write"):
                torch.save(fitted.state(epoch=epoch, loss=loss), path)
    fitted.train(1)
    np.save(life.folder / "submission_probs.npy", logits)
    fitted.train(1)


if __name__ == "__main__":
    main()
