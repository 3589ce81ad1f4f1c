"""A job that trains and saves in the way that it is told: `python worker.py --way WAY --dir DIR --truth FILE ...`.

What the fault is made of lies in the way or in the ground below DIR; the training around it is always the same. Its
truth is JSON lines, as of examples/truth.py: barrier to barrier where there are several ranks.
"""

from __future__ import annotations

import argparse
import io
import mmap
import multiprocessing
import os
import pickle
import shutil
import socket
import sys
import threading
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
    previous: threading.Thread | None = None

    def prepare(self) -> None:
        """Make the state, and what torch.save makes of it, so that no later save is held by that."""
        mine = self.options.size_mb * MB // max(1, self.options.ranks if self.options.way != "one-of-many" else 1)
        generator = torch.Generator().manual_seed(self.rank)
        count = max(1, mine // (16 * MB))
        each = mine // count // 4
        self.state = {f"layer{number}": torch.randn(each, generator=generator) for number in range(count)}
        if self.options.way not in ("torch-save", "zlib", "objects"):
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
        if self.options.ranks == 1 and self.options.way not in ("many-files", "rotated", "filled"):
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


def _aligned(blob: memoryview, size: int) -> mmap.mmap:
    room = mmap.mmap(-1, size)
    room[: min(size, len(blob))] = blob[:size]
    return room


def write_direct(path: Path, blob: memoryview, piece: int, *, shuffled: bool = False) -> None:
    """Write it past the page cache, piece by piece; `shuffled`: in no order."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o644)
    pieces = list(range(0, len(blob) // piece * piece, piece))
    if shuffled:
        order = torch.randperm(len(pieces), generator=torch.Generator().manual_seed(1))
        pieces = [pieces[number] for number in order]
    room = _aligned(blob, piece)
    try:
        for start in pieces:
            room[:] = blob[start : start + piece]
            os.pwrite(descriptor, room, start)
    finally:
        os.close(descriptor)


def raw(job: Job, step: int) -> None:
    """Save through the page cache."""
    write(job.target(step), job.blob)


def fsync(job: Job, step: int) -> None:
    """Save, and wait until it is on the device."""
    write(job.target(step), job.blob, sync=True)


def direct(job: Job, step: int) -> None:
    """Save past the page cache by large calls."""
    write_direct(job.target(step), job.blob, MB)


def small_direct(job: Job, step: int) -> None:
    """Save past the page cache by small calls, one after the other."""
    write_direct(job.target(step), job.blob, 16 << 10)


def random_direct(job: Job, step: int) -> None:
    """Save past the page cache by small calls in no order."""
    write_direct(job.target(step), job.blob, 4 << 10, shuffled=True)


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


def mapped(job: Job, step: int) -> None:
    """Save through a mapping, and wait in msync(2) until it is on the device, as numpy.memmap does."""
    with job.target(step).open("wb+") as stream:
        stream.truncate(len(job.blob))
        with mmap.mmap(stream.fileno(), len(job.blob)) as view:
            view[:] = job.blob
            view.flush()


def sync_all(job: Job, step: int) -> None:
    """Save, then sync(2), which waits for everything that anybody wrote."""
    write(job.target(step), job.blob)
    os.sync()


def pooled(job: Job, step: int) -> None:
    """Have two threads compress what this one writes."""
    pieces = [job.blob[start : start + PIECE] for start in range(0, len(job.blob), PIECE)]
    with ThreadPoolExecutor(2) as pool, job.target(step).open("wb") as stream:
        for piece in pool.map(lambda piece: zlib.compress(piece, 1), pieces):
            stream.write(piece)


def contended(job: Job, step: int) -> None:
    """Save small objects while four other threads run Python: one of all five goes on at a time."""
    over = threading.Event()

    def spin() -> None:
        number = 0
        while not over.is_set():
            number += 1

    spinning = [threading.Thread(target=spin) for _ in range(4)]
    for thread in spinning:
        thread.start()
    try:
        objects(job, step)
    finally:
        over.set()
    for thread in spinning:
        thread.join()


def objects(job: Job, step: int) -> None:
    """Save as a pickle of small objects."""
    count = job.options.size_mb * MB // 100
    table = [{"name": f"parameter.{number}", "value": float(number), "step": step} for number in range(count)]
    with job.target(step).open("wb") as stream:
        pickle.dump(table, stream)


def many_files(job: Job, step: int) -> None:
    """Save as many small files."""
    folder = job.target(step).parent
    piece = 4 << 10
    for number in range(min(job.options.files, len(job.blob) // piece)):
        write(folder / f"shard_{number:06d}.bin", job.blob[number * piece : (number + 1) * piece])


def rotated(job: Job, step: int) -> None:
    """Save, then delete the oldest of the many-filed saves that an earlier job left, in line."""
    write(job.target(step).with_name("model.pt"), job.blob)
    old = sorted(Path(job.options.dir).glob("checkpoint-old-*"))
    if old:
        shutil.rmtree(old[0])


def filled(job: Job, step: int) -> None:
    """Leave a save with many files, as an earlier job did."""
    folder = Path(job.options.dir) / f"checkpoint-old-{step}"
    folder.mkdir()
    for number in range(job.options.files):
        (folder / f"optimizer_{number:06d}.bin").write_bytes(b"x" * 512)


def one_of_many(job: Job, step: int) -> None:
    """Have rank 0 alone write everything, compressed."""
    if job.rank == 0:
        compressed(job, step)


def background(job: Job, step: int) -> None:
    """Save in another thread, after the save before has ended."""
    if job.previous is not None:
        job.previous.join()
    job.previous = threading.Thread(target=lambda: write(job.target(step), job.blob, sync=True))
    job.previous.start()


def gathered(job: Job, step: int) -> None:
    """Have rank 0 receive what the others have, by TCP, then write everything."""
    if job.rank == 0:
        job.wait()
        for _ in range(job.options.ranks - 1):
            stream, _ = job.options.server.accept()
            with stream:
                while stream.recv(1 << 16):
                    time.sleep(job.options.gather_pause)
        ungathered(job, step)
    else:
        job.wait()
        with socket.create_connection(job.options.server.getsockname()) as stream:
            stream.sendall(job.blob)


def ungathered(job: Job, step: int) -> None:
    """Have rank 0 write as much, of what it has itself."""
    if job.rank == 0:
        for other in range(job.options.ranks):
            write(job.target(step).with_name(f"model_rank_{other}.pt"), job.blob)


def staged(job: Job, step: int) -> None:
    """Copy the state piece by piece, slowly, then write it in another thread."""
    copy = bytearray()
    for start in range(0, len(job.blob), MB):
        copy += job.blob[start : start + MB]
        time.sleep(job.options.gather_pause)
    background_blob = memoryview(copy)
    if job.previous is not None:
        job.previous.join()
    job.previous = threading.Thread(target=lambda: write(job.target(step), background_blob))
    job.previous.start()


WAYS: dict[str, Callable[[Job, int], None]] = {
    "raw": raw,
    "fsync": fsync,
    "direct": direct,
    "small-direct": small_direct,
    "random-direct": random_direct,
    "sync-pieces": sync_pieces,
    "torch-save": torch_save,
    "zlib": compressed,
    "mapped": mapped,
    "sync-all": sync_all,
    "pooled": pooled,
    "contended": contended,
    "objects": objects,
    "many-files": many_files,
    "rotated": rotated,
    "filled": filled,
    "one-of-many": one_of_many,
    "background": background,
    "gathered": gathered,
    "ungathered": ungathered,
    "staged": staged,
}


def restore_by_read(path: Path) -> bytearray:
    """Read it by large calls, into memory of its size."""
    kept = bytearray()
    with path.open("rb", buffering=0) as stream:
        while piece := stream.read(PIECE):
            kept += piece
    return kept


def restore_by_mapping(path: Path) -> None:
    """Touch its pages in no order, as tensors that are taken out of a mapping one by one are."""
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        mapped.madvise(mmap.MADV_RANDOM)
        pages = torch.randperm(len(mapped) // 4096, generator=torch.Generator().manual_seed(1))
        total = sum(mapped[int(page) * 4096] for page in pages)
        assert total >= 0


def restore_by_copy(path: Path) -> bytes:
    """Copy it out of a mapping from its begin to its end, as tensors that are cloned one by one are."""
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return mapped[:]


RESTORES: dict[str, Callable[[Path], object]] = {
    "read": restore_by_read,
    "mapping": restore_by_mapping,
    "copy": restore_by_copy,
    "torch": torch.load,
}


def run(options: argparse.Namespace, rank: int, wait: Callable[[], object]) -> None:
    """Train and save; or restore, then train."""
    torch.set_num_threads(1)
    job = Job(options, rank, wait)
    log = TruthLog(Path(options.truth) if rank == 0 else None)
    if options.restore:
        path = Path(options.dir) / f"checkpoint_step_{STEPS * options.saves:06d}.pt"
        job.train()
        with log.event("restore", step=STEPS * options.saves, path=path, format_="torch"):
            kept = RESTORES[options.restore](path)
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
    if job.previous is not None:
        job.previous.join()
    job.train()


def _rank(options: argparse.Namespace, rank: int, barrier: Any) -> None:
    run(options, rank, barrier.wait)


def main() -> None:
    """Start the ranks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--way", choices=list(WAYS), default="raw")
    parser.add_argument("--restore", choices=list(RESTORES))
    parser.add_argument("--dir", required=True)
    parser.add_argument("--truth", required=True)
    parser.add_argument("--size-mb", type=int, default=200)
    parser.add_argument("--saves", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--pause", type=float, default=1.5)
    parser.add_argument("--files", type=int, default=20000)
    parser.add_argument("--straggler", type=int, default=-1)
    parser.add_argument("--straggle", type=float, default=0.0)
    parser.add_argument("--gather-pause", type=float, default=0.0)
    options = parser.parse_args()
    if options.ranks == 1:
        run(options, 0, lambda: None)
        return
    options.server = socket.create_server(("127.0.0.1", 0))
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(options.ranks)
    ranks = []
    for rank in range(options.ranks):
        os.environ.update(
            RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(options.ranks), MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(options.server.getsockname()[1]),
        )  # fmt: skip
        ranks.append(context.Process(target=_rank, args=(options, rank, barrier)))
        ranks[-1].start()
    for process in ranks:
        process.join()
    sys.exit(max(abs(process.exitcode or 0) for process in ranks))


if __name__ == "__main__":
    main()
