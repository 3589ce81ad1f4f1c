"""A job that trains by PyTorch, alone or as ranks, and saves or restores by one of many ways, three times."""

from __future__ import annotations

import argparse
import os
import time

import torch
from frame import Life, options
from others import OTHERS
from processes import PROCESSES
from ranks import RANKS
from restores import RESTORES
from rounds import PACES, Ways, made
from saves import BEFORE, SAVES
from torch import distributed

WAYS = Ways({**SAVES, **PROCESSES, **RANKS}, RESTORES, OTHERS, BEFORE)


class Trainer:
    """Computes; ranks agree after each step."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self.pace = PACES[chosen.pace]
        self.work = torch.randn(160, 160)

    def __call__(self, seconds: float) -> None:
        """Go on for so long."""
        until, going = time.monotonic() + seconds, torch.ones(1)
        while going:
            for _ in range(20):
                self.work = torch.tanh(self.work @ self.work)
            self.pace()
            going.fill_(float(time.monotonic() < until))
            if distributed.is_initialized():
                distributed.all_reduce(going, distributed.ReduceOp.MIN)


def main() -> None:
    """Train, and save or restore three times."""
    life = Life(options())
    torch.set_num_threads(1)
    state = made(life.options.size_mb)
    if life.prepare:
        WAYS.prepare(life, state)
        return
    if "RANK" in os.environ:
        distributed.init_process_group("gloo")
    WAYS.live(life, state, Trainer(life.options))
    if distributed.is_initialized():
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
