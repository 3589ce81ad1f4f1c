"""A trained network is loaded, and the features of two sets are kept by `torch.save` for a nearest-neighbour score."""

from __future__ import annotations

import torch
from fitted import Fitted
from lives import Life


def main() -> None:
    """Train and save twice; the second life loads the last one and only yields features."""
    life, fitted = Life(__doc__), Fitted(8)
    path = life.folder / "checkpoint.pth"
    if not life.again:
        for epoch in range(2):
            fitted.train(2.5)
            with life.save(path) as row, row.part("write"):
                torch.save(fitted.state(epoch=epoch), path)
        fitted.train(1)
        life.start_again()
        return
    with life.restore(path) as row, row.part("read"):
        fitted.load(torch.load(path))
    features = life.folder / "features"
    features.mkdir()
    for name, batches in (("train", 120), ("test", 40)):
        with torch.no_grad():
            found = [fitted.model(torch.randn(100, 1024)) for _ in range(batches)]
        torch.save(torch.cat(found), features / f"{name}feat.pth")
        torch.save(torch.randint(0, 1000, (100 * batches,)), features / f"{name}labels.pth")
    fitted.train(2)


if __name__ == "__main__":
    main()
