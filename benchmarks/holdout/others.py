"""What a job writes and reads that is no checkpoint, in a folder of its own: nothing may be told of it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from files import MB, Wait, chunks, nothing, write
from processes import FORK
from state import State, Way, raw

_COUNT = [0]


def _next() -> int:
    _COUNT[0] += 1
    return _COUNT[0]


def predictions(state: State, folder: Path) -> Wait:
    """Write what the model says of the evaluation set, as one large array."""
    (folder / "predictions").mkdir(exist_ok=True)
    np.save(folder / "predictions" / f"eval_epoch_{_next()}.npy", np.concatenate(list(state.values())[:2]))
    return nothing


def embeddings(state: State, folder: Path) -> Wait:
    """Write embeddings over those of the last evaluation, in parts."""
    for at, array in enumerate(list(state.values())[:2]):
        np.save(folder / f"embeddings_part{at}.npy", array)
    return nothing


def swapped(state: State, folder: Path) -> Wait:
    """Swap the state of the optimizer out and in, in the same files at every step."""
    for name, array in state.items():
        opened = os.open(folder / f"{name}_exp_avg.swp", os.O_CREAT | os.O_RDWR, 0o644)
        part = raw(array)[: 4 * MB]
        os.pwrite(opened, part, 0)
        os.preadv(opened, [part], 0)
        os.close(opened)
    return nothing


def _serve(listener: socket.socket, size_mb: int) -> None:
    with listener.accept()[0] as peer:
        block = os.urandom(MB)
        for _ in range(size_mb):
            peer.sendall(block)


def downloaded(_state: State, folder: Path) -> Wait:
    """Fetch a shard of the data set over TCP."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = FORK.Process(target=_serve, args=(listener, 64))
        server.start()
        (folder / "data").mkdir(exist_ok=True)
        with (
            socket.create_connection(listener.getsockname()) as peer,
            (folder / "data" / f"train-{_next():05d}.tar").open("wb") as stream,
        ):
            while block := peer.recv(256 << 10):
                stream.write(block)
        server.join()
    return nothing


def logged(_state: State, folder: Path) -> Wait:
    """Write what a step was, and some megabytes of histograms."""
    with (folder / "train.log").open("a") as log, (folder / "events.out.tfevents.1").open("ab") as events:
        for step in range(200):
            print(json.dumps({"step": step, "loss": 1.0 / (step + 1), "at": time.time()}), file=log, flush=True)
            events.write(os.urandom(16 << 10))
            events.flush()
    return nothing


def _tokenized(path: Path) -> None:
    numbers = np.random.default_rng()
    write(path, *(raw(numbers.standard_normal(MB, dtype=np.float32)) for _ in range(4)))


def cached(_state: State, folder: Path) -> Wait:
    """Have two workers write a cache of the data set."""
    (folder / "cache").mkdir(exist_ok=True)
    with ProcessPoolExecutor(2, mp_context=FORK) as pool:
        list(pool.map(_tokenized, [folder / "cache" / f"shard-{_next():05d}-of-00012.arrow" for _ in range(4)]))
    return nothing


def sampled(state: State, folder: Path) -> Wait:
    """Write pictures of what the model makes."""
    (folder / "samples").mkdir(exist_ok=True)
    for chunk in list(chunks(raw(state["layer0"]), 256 << 10))[:64]:
        (folder / "samples" / f"{_next():06d}.png").write_bytes(chunk)
    return nothing


def profiled(_state: State, folder: Path) -> Wait:
    """Write a trace of the profiler."""
    events = [{"name": f"aten::mm {at}", "ts": at, "dur": 1, "ph": "X"} for at in range(100_000)]
    (folder / f"trace_{_next()}.json").write_text(json.dumps({"traceEvents": events}))
    return nothing


def spilled(state: State, folder: Path) -> Wait:
    """Sort through files that are read again, and deleted."""
    names = [folder / f"spill.{at}" for at in range(4)]
    for name, array in zip(names, state.values(), strict=True):
        write(name, raw(array)[: 16 * MB])
    for name in names:
        with name.open("rb") as stream:
            while stream.read(MB):
                pass
        name.unlink()
    return nothing


def fed(_state: State, folder: Path) -> Wait:
    """Read a part of the data set, which is made in the first round."""
    (folder / "data").mkdir(exist_ok=True)
    shards = [folder / "data" / f"part-{at:03d}.npy" for at in range(8)]
    for shard in shards:
        if not shard.exists():
            _tokenized(shard.with_suffix(".npy"))
    for shard in shards:
        with shard.open("rb") as stream:
            while stream.read(MB):
                pass
    return nothing


def exported(_state: State, folder: Path) -> Wait:
    """Copy the newest checkpoint to where it is served from."""
    saves = sorted((folder.parent / "run").glob("checkpoint-*/*"), key=lambda one: one.stat().st_mtime_ns)
    if saves:
        (folder / "serving").mkdir(exist_ok=True)
        shutil.copyfile(saves[-1], folder / "serving" / "weights.current")
    return nothing


def scratch(state: State, folder: Path) -> Wait:
    """Write activations to a file without a name."""
    with contextlib.ExitStack() as stack:
        opened = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600)
        stack.callback(os.close, opened)
        for array in state.values():
            for chunk in chunks(raw(array)[: 16 * MB]):
                os.write(opened, chunk)
    return nothing


OTHERS: dict[str, tuple[Way, int]] = {  # with how often in a round
    "predictions": (predictions, 1),
    "embeddings": (embeddings, 1),
    "swapped": (swapped, 30),
    "downloaded": (downloaded, 1),
    "logged": (logged, 5),
    "cached": (cached, 1),
    "sampled": (sampled, 1),
    "profiled": (profiled, 1),
    "spilled": (spilled, 1),
    "fed": (fed, 3),
    "exported": (exported, 1),
    "scratch": (scratch, 10),
}
