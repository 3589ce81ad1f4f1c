"""A job of the hold-out: `python job.py --way WAY --dir DIR --truth FILE`, by torchrun where there are several ranks.

It trains by PyTorch; what it does between two rounds stands in the files beside it, and its log in rounds.py.
"""

from __future__ import annotations

import argparse
import os
import time

import torch
from others import OTHERS
from placing import PLACING
from processes import PROCESSES
from ranks import RANKS
from restores import RESTORES
from rounds import PACES, Ways, live, options_of, prepare
from slow import BEFORE, SLOW
from state import made
from torch import distributed
from writers import WRITERS

WAYS = Ways({**WRITERS, **PLACING, **PROCESSES, **RANKS, **SLOW}, RESTORES, OTHERS, BEFORE)


class Trainer:
    """Computes; ranks agree after each step."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.pace = PACES[options.pace]
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
    options = options_of(__doc__, WAYS)
    torch.set_num_threads(1)
    if options.prepare:
        prepare(options, WAYS, made(options.size_mb))
        return
    if "RANK" in os.environ:
        distributed.init_process_group("gloo")
    rank = distributed.get_rank() if distributed.is_initialized() else 0
    live(options, WAYS, made(options.size_mb), Trainer(options), rank)
    if distributed.is_initialized():
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
