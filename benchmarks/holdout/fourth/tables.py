"""As Weights & Biases keeps a run: history, pictures, predictions as JSON, and the data set as an artifact."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time

import numpy as np
from fitted import Fitted
from lives import Life

CLASSES, ROWS = 100, 3000


def main() -> None:
    """Train, log; nothing is saved."""
    life, fitted = Life(__doc__), Fitted(6)
    random = np.random.default_rng(1)
    data = life.folder / "data/val.npz"
    data.parent.mkdir()
    np.savez(data, images=random.integers(0, 255, (2000, 3, 64, 64), dtype=np.uint8))
    run = life.folder / "wandb/run-20261127_061500-4k2j9x1p"
    for kind in ("images", "table"):
        (run / "files/media" / kind).mkdir(parents=True)
    with (run / "run-4k2j9x1p.wandb").open("ab", buffering=0) as history:
        for step in range(1, 31):
            fitted.train(1.0)
            history.write(os.urandom(40 << 10))
            summary = {"loss": 1 / step, "_step": step, "_timestamp": time.time()}
            (run / "files/wandb-summary.json").write_text(json.dumps(summary))
            if step == 3:  # the data set is an artifact: hashed, staged, and in the cache by its hash
                staged = life.folder / "wandb/artifacts/staging/tmp4x1_2k9v"
                staged.parent.mkdir(parents=True)
                shutil.copyfile(data, staged)
                name = hashlib.md5(staged.read_bytes(), usedforsecurity=False).hexdigest()
                cached = life.folder / f"wandb/artifacts/obj/md5/{name[:2]}/{name[2:]}"
                cached.parent.mkdir(parents=True)
                staged.rename(cached)
            if step % 6:
                continue
            rows = random.random((ROWS, CLASSES)).tolist()
            table = {"columns": [f"score_{one}" for one in range(CLASSES)], "data": rows}
            (run / f"files/media/table/val_predictions_{step}_8d2f1c.table.json").write_text(json.dumps(table))
            for picture in range(32):
                (run / f"files/media/images/samples_{step}_{picture}.png").write_bytes(os.urandom(200 << 10))
    fitted.train(1.5)


if __name__ == "__main__":
    main()
