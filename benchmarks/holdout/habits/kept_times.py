"""Saved to fast scratch, then copied to where it is kept by a copy that keeps the times, over the last one."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

import torch
from fitted import Fitted
from lives import Life


def main() -> None:
    """Train, save four times; one file has a time of yesterday, as a clock that was set gives it."""
    life, fitted = Life(__doc__), Fitted(9)
    scratch = Path(tempfile.mkdtemp(prefix="scratch_"))
    for epoch in range(4):
        fitted.train(2.5)
        target = life.folder / "checkpoint_last.pt"
        with life.save(target) as row, row.part("write"):
            torch.save(fitted.state(epoch=epoch), scratch / "checkpoint.pt")
            if epoch == 2:
                yesterday = time.time() - 86_400
                os.utime(scratch / "checkpoint.pt", (yesterday, yesterday))
            shutil.copy2(scratch / "checkpoint.pt", target)
    fitted.train(1)


if __name__ == "__main__":
    main()
