"""Detectors as Ultralytics trains them: last and best in place, one kept at times; stripped at the end."""

from __future__ import annotations

import copy
import io
import shutil

import torch
from fitted import Fitted
from lives import Life


def main() -> None:
    """Train five epochs, then strip and export."""
    life, fitted = Life(__doc__), Fitted(9)
    folder = life.folder / "train/weights"
    folder.mkdir(parents=True)
    last, best = folder / "last.pt", folder / "best.pt"
    for epoch in range(5):
        fitted.train(2)
        improved, kept = epoch in {0, 1, 3}, epoch == 3
        files = [last, *([best] if improved else []), *([folder / f"epoch{epoch}.pt"] if kept else [])]
        with life.save(*files) as row:
            with row.part("serialize"):
                buffer = io.BytesIO()
                ema = copy.deepcopy(fitted.model).half()
                torch.save({"epoch": epoch, "ema": ema, "optimizer": fitted.optimizer.state_dict()}, buffer)
            with row.part("write"):
                for path in files:
                    path.write_bytes(buffer.getvalue())
            row.known["bytes"] = len(buffer.getvalue()) if epoch < 4 else 0  # the last is stripped at once: not judged
        with (folder.parent / "results.csv").open("a") as results:
            results.write(f"{epoch},0.5,0.4\n")
    for path in (last, best):
        with life.restore(path, optional=True):
            state = torch.load(path, map_location="cpu", weights_only=False)
        state["optimizer"] = None
        with life.save(path, optional=True):
            torch.save(state, path)
    with life.restore(best, optional=True):
        torch.load(best, weights_only=False)
    with life.save(folder / "best.torchscript", optional=True):
        torch.jit.save(torch.jit.trace(fitted.model, torch.randn(1, 1024)), folder / "best.torchscript")
    shutil.copy(best, life.folder / "model_final.pt")
    fitted.train(1)


if __name__ == "__main__":
    main()
