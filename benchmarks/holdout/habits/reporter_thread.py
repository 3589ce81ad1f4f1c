"""As Ray does: a folder is saved, a thread copies it to where results are kept, slowly, and deletes it."""

from __future__ import annotations

import queue
import shutil
import tempfile
import threading
import time
from pathlib import Path

import torch
from fitted import Fitted
from lives import Life, Row

SLOW_SECONDS = 0.12  # after each 4 MB


def uploaded(source: Path, target: Path) -> None:
    """Copy a file as over a slow network."""
    with source.open("rb") as reading, target.open("wb") as writing:
        while piece := reading.read(4 << 20):
            writing.write(piece)
            time.sleep(SLOW_SECONDS)


def main() -> None:
    """Train, save four times; the thread needs longer than the trainer."""
    life, fitted = Life(__doc__), Fitted(9)
    todo: queue.Queue[tuple[Path, Path, Row] | None] = queue.Queue()
    free = threading.Semaphore(1)

    def report() -> None:
        while (task := todo.get()) is not None:
            source, target, row = task
            target.mkdir(parents=True)
            for one in source.iterdir():
                uploaded(one, target / one.name)
            shutil.rmtree(source)
            life.log("save", row, (target,), {})
            free.release()

    reporter = threading.Thread(target=report)
    reporter.start()
    for step in range(4):
        fitted.train(2)
        row = Row()
        with row.part("wait"):
            free.acquire()
        with row.part("write"):
            folder = Path(tempfile.mkdtemp(prefix="checkpoint_tmp_"))
            torch.save(fitted.state(step=step), folder / "model.pt")
        row.goes_on()
        todo.put((folder, life.folder / f"trial_0/checkpoint_{step:06d}", row))
    fitted.train(5)
    todo.put(None)
    reporter.join()


if __name__ == "__main__":
    main()
