"""For a store that takes no large files: `torch.save` into a pipe, which `split` cuts into volumes of 20 MB.

The last two are kept. A restart reads what `cat` joins.
"""

from __future__ import annotations

import io
import subprocess
from pathlib import Path

import torch
from fitted import Fitted
from lives import Life

KEPT = 2


def volumes(folder: Path, step: int) -> list[Path]:
    """Return the files of a save, in order."""
    return sorted(folder.glob(f"state_{step}.pt.part-*"))


def main() -> None:
    """Train in two lives."""
    life, fitted = Life(__doc__), Fitted(7)
    steps = [100, 200, 300, 400]
    if life.again:
        files = volumes(life.folder, steps[-1])
        with life.restore(*files, step=steps[-1], path=str(life.folder)) as row, row.part("read"):
            joined = subprocess.run(["cat", *map(str, files)], capture_output=True, check=True).stdout
            fitted.load(torch.load(io.BytesIO(joined)))
        steps = [500, 600]
    for at, step in enumerate(steps):
        fitted.train(3.5)
        known: dict[str, object] = {"step": step, "path": str(life.folder)}
        with life.save(life.folder, **known) as row:
            command = ["split", "-b", "20M", "-", str(life.folder / f"state_{step}.pt.part-")]
            with subprocess.Popen(command, stdin=subprocess.PIPE) as split:
                torch.save(fitted.state(step=step), split.stdin)
            row.known["bytes"] = sum(one.stat().st_size for one in volumes(life.folder, step))
            if at >= KEPT:
                for old in volumes(life.folder, steps[at - KEPT]):
                    old.unlink()
    fitted.train(1.5)
    if not life.again:
        life.start_again()


if __name__ == "__main__":
    main()
