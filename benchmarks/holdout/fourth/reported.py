"""As Ray Train reports: a folder is written where temporary files are, copied by four threads, and forgotten there."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from fitted import Fitted
from lives import Life

KEPT = 3
EVERY_SECONDS = 4.0


def persisted(source: Path, target: Path) -> None:
    """Copy all files at once, and mark the copy as one that is whole."""
    target.mkdir(parents=True)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda one: shutil.copyfile(one, target / one.name), sorted(source.iterdir())))
    (target / ".is_checkpoint").touch()


def main() -> None:
    """Train, report every four seconds, keep three."""
    life, fitted = Life(__doc__), Fitted(8)
    trial = life.folder / "TorchTrainer_2026-11-27_06-00-00/TorchTrainer_4f1c2_00000_0_2026-11-27_06-00-00"
    trial.mkdir(parents=True)
    kept: list[Path] = []
    last = time.monotonic()
    while len(kept) < KEPT or kept[-1].name < "checkpoint_000005":
        fitted.step()
        if time.monotonic() - last < EVERY_SECONDS:
            continue
        folder = trial / f"checkpoint_{int(kept[-1].name[-6:]) + 1 if kept else 0:06d}"
        with life.save(folder) as row, row.part("write"), tempfile.TemporaryDirectory() as staged:
            torch.save(fitted.model.state_dict(), Path(staged) / "model.pt")
            torch.save(fitted.optimizer.state_dict(), Path(staged) / "optimizer.pt")
            (Path(staged) / "extra_state.json").write_text(json.dumps({"epoch": len(kept)}))
            persisted(Path(staged), folder)
            kept.append(folder)
            for old in kept[:-KEPT]:
                shutil.rmtree(old)
            del kept[:-KEPT]
        with (trial / "result.json").open("a") as results:
            print(json.dumps({"checkpoint_dir_name": folder.name, "time_total_s": last}), file=results)
        last = time.monotonic()
    fitted.train(1.5)


if __name__ == "__main__":
    main()
