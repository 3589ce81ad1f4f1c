"""Makes data sets with many workers, and reads them as training does: numpy and torch are loaded all the time."""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

WORKERS, SHARDS, SHARD_BYTES = 4, 12, 10 << 20


def _values(number: int) -> Any:
    return np.random.default_rng(number).integers(0, 50_000, SHARD_BYTES // 4, dtype=np.uint32)


def write_shard(job: tuple[int, str]) -> None:
    """Write one shard under a temporary name and rename it, as careful pipelines do."""
    number, suffix = job
    values, target = _values(number), Path(f"train_{number:05d}.{suffix}")
    temporary = target.with_name(f"{target.name}.tmp")
    with temporary.open("wb") as stream:
        if suffix == "npz":
            np.savez(stream, tokens=values, labels=values[:1000])
        elif suffix == "npy":
            np.save(stream, values)
        elif suffix == "pt":
            import torch  # noqa: PLC0415 - only this kind needs it

            torch.save({"tokens": torch.from_numpy(values.astype(np.int32)), "source": number}, stream)
        else:
            stream.write(b"ARROW1\0\0" if suffix == "arrow" else b"")
            for start in range(0, len(values), 1 << 16):
                stream.write(values[start : start + (1 << 16)].tobytes())
    temporary.rename(target)


def shards(suffix: str) -> None:
    """Write them all by a pool of workers."""
    with multiprocessing.get_context("fork").Pool(WORKERS) as pool:
        pool.map(write_shard, [(number, suffix) for number in range(SHARDS)], chunksize=1)


def tokens() -> None:
    """Fill a map of 100 MB as tokenisers of language models do, train and validation."""
    for name, megabytes in (("train.bin", 90), ("val.bin", 10)):
        out = np.memmap(name, dtype=np.uint16, mode="w+", shape=(megabytes << 19,))
        for start in range(0, len(out), 1 << 19):
            out[start : start + (1 << 19)] = _values(start)[: 1 << 19]
            if start % (1 << 23) == 0:
                out.flush()
        out.flush()
        del out


def features() -> None:
    """Cache what an encoder made, one file per batch, at a steady pace."""
    import torch  # noqa: PLC0415 - the encoder

    Path("processed").mkdir()
    for number in range(8):
        torch.save(torch.rand(2_500_000), f"processed/data_{number}.pt")
        time.sleep(0.25)


def _train_on(batches: Iterator[Any]) -> None:
    import torch  # noqa: PLC0415 - the job that reads

    torch.set_num_threads(1)
    model = torch.nn.Linear(64, 8)
    for batch in batches:
        model(torch.from_numpy(batch.reshape(-1)[:6400].astype(np.float32).reshape(100, 64))).sum().backward()


def read_shard(path: str) -> Any:
    """Load one shard in a worker of the loader."""
    return np.load(path)[:100_000]


def loader(folder: str) -> None:
    """Read all shards twice by workers while the model learns."""
    paths = [str(path) for path in sorted(Path(folder).iterdir())]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for _ in range(2):
            _train_on(iter(pool.imap(read_shard, paths)))


def latents(folder: str) -> None:
    """Load what an encoder left of each image, one by one, in each of two epochs."""
    import torch  # noqa: PLC0415 - the job that reads

    for _ in range(2):
        _train_on(torch.load(path)[:100_000].numpy() for path in sorted(Path(folder).iterdir()))
        time.sleep(1.5)


def map_reader(path: str) -> None:
    """Read random windows of a map of tokens."""
    values = np.memmap(path, dtype=np.uint16, mode="r")
    places = np.random.default_rng(7).integers(0, len(values) - 10_000, 1200)
    _train_on(values[place : place + 10_000] for place in places)


def one(path: str) -> None:
    """Load a data set that is one file, as a job does at its start, then learn from it."""
    values = np.load(path)
    _train_on(iter(values.reshape(128, -1)))
    print(json.dumps({"loss": float(values[0])}))  # noqa: T201 - a program


if __name__ == "__main__":
    works: dict[str, Callable[..., None]] = {
        "shards": shards,
        "tokens": tokens,
        "features": features,
        "loader": loader,
        "latents": latents,
        "map": map_reader,
        "one": one,
    }
    works[sys.argv[1]](*sys.argv[2:])
