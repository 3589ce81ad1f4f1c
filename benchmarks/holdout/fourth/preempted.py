"""As on a cluster that preempts: at SIGTERM the step is ended, all is saved, synced and renamed, and the job ends.

The launcher starts it again, and it goes on from what it has saved.
"""

from __future__ import annotations

import os
import signal
import threading

import torch
from fitted import Fitted
from lives import Life

LIVES = 5
SECONDS = 5.0  # from the first step to the signal


def main() -> None:
    """Be the launcher, or one life."""
    life = Life(__doc__)
    if not life.again:
        for _ in range(LIVES):
            life.start_again()
        return
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    fitted, step = Fitted(9), 0
    kept = sorted(life.folder.glob("hpc_ckpt_*.ckpt"))
    if kept:
        with life.restore(kept[-1]) as row, row.part("read"):
            state = torch.load(kept[-1])
            fitted.load(state)
        step = state["global_step"]
    scheduler = threading.Timer(SECONDS, lambda: os.kill(os.getpid(), signal.SIGTERM))
    scheduler.start()
    while not told.is_set():
        fitted.step()
        step += 1
    path = life.folder / f"hpc_ckpt_{len(kept) + 1}.ckpt"
    part = path.with_suffix(".ckpt.part")
    with life.save(path) as row:
        with part.open("wb") as file:
            with row.part("write"):
                torch.save(fitted.state(global_step=step), file)
            with row.part("sync"):
                os.fsync(file.fileno())
        part.rename(path)
    scheduler.join()


if __name__ == "__main__":
    main()
