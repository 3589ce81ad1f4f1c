"""The trainer saves its model, and goes on; a second thread writes the average of its weights beside it, slowly."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import torch
from fitted import Fitted
from lives import Life, Row

SLOW_SECONDS = 0.1  # between two tensors, as a throttled writer waits


class Slow:
    """A file that takes its time."""

    def __init__(self, path: Path) -> None:
        """Open it."""
        self.file = path.open("wb")

    def write(self, data: bytes) -> int:
        """Write, and wait where it was much."""
        written = self.file.write(data)
        if len(data) > 1 << 20:
            time.sleep(SLOW_SECONDS)
        return written

    def flush(self) -> None:
        """Put on to the kernel what is held."""
        self.file.flush()


def main() -> None:
    """Train, save four times."""
    life, fitted = Life(__doc__), Fitted(9)
    average = {name: tensor.clone() for name, tensor in fitted.model.state_dict().items()}
    threads: list[threading.Thread] = []

    def beside(model: Path, ema: Path, state: dict[str, torch.Tensor], row: Row) -> None:
        slow = Slow(ema)
        torch.save(state, slow)
        slow.file.close()
        life.log("save", row, (model, ema), {})

    for step in (1000, 2000, 3000, 4000):
        fitted.train(3)
        for name, tensor in fitted.model.state_dict().items():
            average[name].lerp_(tensor, 0.01)
        row = Row()
        model, ema = life.folder / f"model{step:06d}.pt", life.folder / f"ema_0.9999_{step:06d}.pt"
        state = {name: tensor.clone() for name, tensor in average.items()}
        threads.append(threading.Thread(target=beside, args=(model, ema, state, row)))
        threads[-1].start()
        with row.part("write"):
            torch.save(fitted.state(), model)
        row.goes_on()
    fitted.train(3)
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
