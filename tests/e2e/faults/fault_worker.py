"""A job that trains and saves in the way that it is told: `python worker.py --way WAY --dir DIR --truth FILE ...`.

What the fault is made of lies in the way or in the ground below DIR; the training around it is always the same. Its
truth is JSON lines, as of examples/truth.py: barrier to barrier where there are several ranks.
"""

from __future__ import annotations

import argparse
import io
import multiprocessing
import os
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples"))

import torch

from truth import Event, TruthLog, size_of

MB = 1 << 20
PIECE = 8 * MB
STEPS = 10  # between two saves


@dataclass
class Job:
    """One rank: what it has, and whom it waits for."""

    options: argparse.Namespace
    rank: int
    wait: Callable[[], object]
    state: dict[str, torch.Tensor] = field(default_factory=dict)
    blob: memoryview = field(default_factory=lambda: memoryview(b""))

    def prepare(self) -> None:
        """Make the state, and what torch.save makes of it, so that no later save is held by that."""
        mine = self.options.size_mb * MB // self.options.ranks
        generator = torch.Generator().manual_seed(self.rank)
        count = max(1, mine // (16 * MB))
        each = mine // count // 4
        self.state = {f"layer{number}": torch.randn(each, generator=generator) for number in range(count)}
        if self.options.way not in ("torch-save", "zlib"):
            packed = io.BytesIO()
            torch.save(self.state, packed)
            self.blob = packed.getbuffer()

    def train(self) -> None:
        """Compute for the time between two saves."""
        left, right = torch.rand(256, 256), torch.rand(256, 256)
        until = time.monotonic() + self.options.pause
        while time.monotonic() < until:
            for _ in range(8):
                left = (left @ right).tanh()

    def target(self, step: int) -> Path:
        """Return the file of this rank; a folder of a step holds those of all."""
        folder = Path(self.options.dir)
        if self.options.ranks == 1:
            return folder / f"checkpoint_step_{step:06d}.pt"
        step_folder = folder / f"checkpoint-{step}"
        step_folder.mkdir(parents=True, exist_ok=True)
        return step_folder / f"model_rank_{self.rank}.pt"


def write(path: Path, blob: memoryview, *, sync: bool = False) -> None:
    """Write it through the page cache, by large calls."""
    with path.open("wb", buffering=0) as stream:
        for start in range(0, len(blob), PIECE):
            stream.write(blob[start : start + PIECE])
        if sync:
            os.fsync(stream.fileno())


def raw(job: Job, step: int) -> None:
    """Save through the page cache."""
    write(job.target(step), job.blob)


def fsync(job: Job, step: int) -> None:
    """Save, and wait until it is on the device."""
    write(job.target(step), job.blob, sync=True)


def sync_pieces(job: Job, step: int) -> None:
    """Sync after each small piece, as a stream that is flushed per tensor does."""
    with job.target(step).open("wb", buffering=0) as stream:
        for start in range(0, len(job.blob), 64 << 10):
            stream.write(job.blob[start : start + (64 << 10)])
            os.fsync(stream.fileno())


def torch_save(job: Job, step: int) -> None:
    """Save by torch.save."""
    torch.save(job.state, job.target(step))


def compressed(job: Job, step: int) -> None:
    """Save each tensor compressed."""
    with job.target(step).open("wb") as stream:
        for tensor in job.state.values():
            data = memoryview(tensor.numpy()).cast("B")
            for start in range(0, len(data), PIECE):
                stream.write(zlib.compress(data[start : start + PIECE], 1))


WAYS: dict[str, Callable[[Job, int], None]] = {
    "raw": raw,
    "fsync": fsync,
    "sync-pieces": sync_pieces,
    "torch-save": torch_save,
    "zlib": compressed,
}


def restore_by_read(path: Path) -> bytearray:
    """Read it by large calls, into memory of its size."""
    kept = bytearray()
    with path.open("rb", buffering=0) as stream:
        while piece := stream.read(PIECE):
            kept += piece
    return kept


def run(options: argparse.Namespace, rank: int, wait: Callable[[], object]) -> None:
    """Train and save; or restore, then train."""
    torch.set_num_threads(1)
    job = Job(options, rank, wait)
    log = TruthLog(Path(options.truth) if rank == 0 else None)
    if options.restore:
        path = Path(options.dir) / f"checkpoint_step_{STEPS * options.saves:06d}.pt"
        job.train()
        with log.event("restore", step=STEPS * options.saves, path=path, format_="torch"):
            kept = restore_by_read(path)
        job.train()
        del kept
        return
    job.prepare()
    save = WAYS[options.way]
    for number in range(1, options.saves + 1):
        job.train()
        wait()
        if rank == options.straggler:
            time.sleep(options.straggle)
        step = STEPS * number
        start_ns = time.time_ns()
        save(job, step)
        wait()
        if rank == 0:
            target = job.target(step)
            path = target.parent if target.parent != Path(options.dir) else target
            size = size_of(path) if path.exists() else 0
            log.add(Event("save", step, start_ns, time.time_ns(), size, str(path), "torch"))
    job.train()


def _rank(options: argparse.Namespace, rank: int, barrier: Any) -> None:
    run(options, rank, barrier.wait)


def main() -> None:
    """Start the ranks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--way", choices=list(WAYS), default="raw")
    parser.add_argument("--restore", action="store_true")
    parser.add_argument("--dir", required=True)
    parser.add_argument("--truth", required=True)
    parser.add_argument("--size-mb", type=int, default=200)
    parser.add_argument("--saves", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--pause", type=float, default=1.5)
    parser.add_argument("--straggler", type=int, default=-1)
    parser.add_argument("--straggle", type=float, default=0.0)
    options = parser.parse_args()
    if options.ranks == 1:
        run(options, 0, lambda: None)
        return
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(options.ranks)
    ranks = []
    for rank in range(options.ranks):
        os.environ.update(
            RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(options.ranks), MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(20_000 + os.getppid() % 10_000),
        )  # fmt: skip
        ranks.append(context.Process(target=_rank, args=(options, rank, barrier)))
        ranks[-1].start()
    for process in ranks:
        process.join()
    sys.exit(max(abs(process.exitcode or 0) for process in ranks))


if __name__ == "__main__":
    main()
