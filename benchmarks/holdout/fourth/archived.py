"""A folder is written aside; `tar` packs it through `zstd` into the archive that is kept: other programs compress."""

from __future__ import annotations

import resource
import shutil
import subprocess
import time
from pathlib import Path

import torch
from fitted import Fitted
from lives import Life

LEVEL = 12
_MOST = 0.75  # of its time that a program spends on a CPU; if less, others have it, too


def packed(source: Path, target: Path) -> bool:
    """Write the archive; return whether the CPUs were as good as free for the compressor."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    tar = subprocess.Popen(["tar", "-cf", "-", "-C", str(source), "."], stdout=subprocess.PIPE)
    with tar:
        subprocess.run(["zstd", f"-{LEVEL}", "-T1", "-q", "-o", str(target)], stdin=tar.stdout, check=True)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_seconds = spent.ru_utime - before.ru_utime + spent.ru_stime - before.ru_stime
    return cpu_seconds >= _MOST * (time.monotonic() - start)


def life_of(*, compressed: bool) -> None:
    """Train, save four archives."""
    life, fitted = Life(__doc__), Fitted(4)
    for epoch in range(1, 5):
        fitted.train(3)
        suffix = ".tar.zst" if compressed else ".tar"
        path, aside = life.folder / f"epoch{epoch:03d}{suffix}", life.folder.parent / f"aside/epoch{epoch:03d}"
        aside.mkdir(parents=True)
        with life.save(path) as row:
            for name, one in fitted.state(epoch=epoch).items():
                torch.save(one, aside / f"{name}.pt")
            if compressed:
                free = packed(aside, path)
                row.known["limits"] = ("serialize",) if free else ("serialize", "cpu")
            else:
                subprocess.run(["tar", "-cf", str(path), "-C", str(aside), "."], check=True)
            shutil.rmtree(aside)
    fitted.train(1.5)


if __name__ == "__main__":
    life_of(compressed=True)
