"""Jobs of NumPy and JAX with a format of their own: chunks, a pool that packs, mappings, a database, messages."""

from __future__ import annotations

import json
import os
import sqlite3
import time
import zipfile
from collections.abc import Iterator

import numpy as np
from frame import Life, chunks, numbered, run, until


def flax_prefixed(life: Life) -> None:
    """Flax before Orbax: msgpack in memory, one write, renamed to `checkpoint_NN`; the last two are kept."""
    import jax
    import jax.numpy as jnp
    import msgpack

    keys = jax.random.split(jax.random.key(1), 10)
    params = {f"Dense_{at}": jax.random.normal(key, (1024, 1024)) for at, key in enumerate(keys)}
    batch, start = jnp.ones((16, 1024)), 0

    def packed(values: jax.Array) -> msgpack.ExtType:  # as Flax has it: each array is an extension of msgpack
        found = np.asarray(values)
        return msgpack.ExtType(1, msgpack.packb((found.shape, found.dtype.name, found.tobytes())))

    def unpacked(_: int, blob: bytes) -> np.ndarray:
        shape, name, values = msgpack.unpackb(blob, max_bin_len=len(blob))
        return np.frombuffer(values, name).reshape(shape)

    @jax.jit
    def forward(params: dict[str, jax.Array], batch: jax.Array) -> jax.Array:
        for values in params.values():
            batch = jnp.tanh(batch @ values)
        return batch

    def step() -> None:
        forward(params, batch).block_until_ready()

    if life.again:
        path = numbered(life.folder, "checkpoint_*")[-1]
        with life.restore(path) as row:
            with row.part("read"):
                blob = path.read_bytes()
            with row.part("serialize"):
                state = msgpack.unpackb(blob, ext_hook=unpacked, max_ext_len=len(blob), max_bin_len=len(blob))
                params = {name: jnp.asarray(values) for name, values in state["params"].items()}
            start = state["step"]
    for at in range(start + 25, start + (51 if life.again else 101), 25):
        until(2.5, step)
        path = life.folder / f"checkpoint_{at}"
        with life.save(path, step=at) as row:
            with row.part("serialize"):
                state = {"step": at, "params": {name: packed(values) for name, values in params.items()}}
                blob = msgpack.packb(state)
            with row.part("write"):
                part = life.folder / f"checkpoint_{at}.tmp"
                part.write_bytes(blob)
                part.rename(path)
            del blob
            for old in numbered(life.folder, "checkpoint_*")[:-2]:
                old.unlink()
    life.end(1, step)


class Items:
    """The chunks of arrays as Zarr has them: what stands where, in a folder or not."""

    def __init__(self) -> None:
        noise = np.random.default_rng(1)
        self.arrays = {f"layer{at:02d}.weight": noise.standard_normal(163_840, dtype=np.float32) for at in range(48)}
        self.weights = noise.standard_normal((400, 400))

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        """Yield the name and the bytes of each."""
        for name, values in self.arrays.items():
            described = {"zarr_format": 2, "shape": list(values.shape), "chunks": [1024], "dtype": "<f4"}
            yield f"{name}/.zarray", json.dumps(described).encode()
            for at, chunk in enumerate(chunks(values.tobytes(), 4096)):
                yield f"{name}/{at}", bytes(chunk)


def chunked(life: Life) -> None:
    """A directory store of Zarr: a folder for each array, a file for each chunk, each written beside and renamed."""
    items = Items()
    for step in (1000, 2000, 3000, 4000):
        until(4, lambda: np.tanh(items.weights @ items.weights))
        folder, seconds = life.folder / f"step_{step}.zarr", 0.0  # of names
        with life.save(folder, step=step) as row:
            began = time.monotonic()
            folder.mkdir()
            for name, blob in items:
                start = time.monotonic()
                path = folder / name
                path.parent.mkdir(exist_ok=True)
                part = path.with_name(f"{path.name}.{os.getpid():08x}.partial")
                opened = os.open(part, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o644)
                seconds += time.monotonic() - start
                os.write(opened, blob)
                start = time.monotonic()
                os.close(opened)
                part.replace(path)
                seconds += time.monotonic() - start
            most = seconds >= 0.6 * (time.monotonic() - began)
            row.known["limits"] = ("metadata",) if most else ("metadata", "serialize")
    until(1.5, lambda: np.tanh(items.weights @ items.weights))


def chunked_control(life: Life) -> None:
    """The same chunks are members of one zip."""
    items = Items()
    for step in (1000, 2000, 3000, 4000):
        until(4, lambda: np.tanh(items.weights @ items.weights))
        path = life.folder / f"step_{step}.zarr.zip"
        with life.save(path, step=step), zipfile.ZipFile(path, "w") as archive:
            for name, blob in items:
                archive.writestr(name, blob)
    until(1.5, lambda: np.tanh(items.weights @ items.weights))


def mapped_in_place(life: Life) -> None:
    """Weights and both moments have a mapped file each, which a save overwrites and flushes; a restart maps them."""
    noise = np.random.default_rng(1)
    paths = [life.folder / f"state/{name}.dat" for name in ("params", "exp_avg", "exp_avg_sq")]
    paths[0].parent.mkdir(exist_ok=True)
    if life.again:
        with life.restore(*paths, part="read"):
            maps = [np.memmap(path, np.float32, "r+") for path in paths]
            arrays = [np.array(one) for one in maps]
    else:
        maps = [np.memmap(path, np.float32, "w+", shape=6_000_000) for path in paths]
        arrays = [noise.standard_normal(6_000_000, dtype=np.float32) for _ in paths]

    def fit() -> None:
        gradient = noise.standard_normal(200_000, dtype=np.float32)
        for one in arrays:
            one[: len(gradient)] = 0.9 * one[: len(gradient)] + 0.1 * gradient

    for step in (200, 300) if life.again else (50, 100, 150):
        until(4, fit)
        with life.save(*paths) as row:
            for target, one in zip(maps, arrays, strict=True):
                with row.part("write"):
                    target[:] = one
                with row.part("sync"):
                    target.flush()
            (life.folder / "state/meta.json").write_text(json.dumps({"step": step}))
    life.end(1.5, fit)


def rows(life: Life) -> None:
    """A state in SQLite: a row for each layer, a transaction for each save, the oldest rows deleted; then read."""
    path, noise, step = life.folder / "checkpoints.sqlite", np.random.default_rng(1), 0
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("CREATE TABLE IF NOT EXISTS state (step, layer, dtype, blob, PRIMARY KEY (step, layer))")
    layers = {f"block.{at}.weight": noise.standard_normal(500_000, dtype=np.float32) for at in range(24)}
    total = sum(one.nbytes for one in layers.values())
    if life.again:
        with life.restore(path, bytes=total, part="read"):
            (step,) = database.execute("SELECT max(step) FROM state").fetchone()
            found = database.execute("SELECT layer, dtype, blob FROM state WHERE step = ?", (step,))
            layers = {name: np.frombuffer(blob, dtype) for name, dtype, blob in found}
        layers = {name: one.copy() for name, one in layers.items()}

    def fit() -> None:
        for one in layers.values():
            np.multiply(one, np.float32(0.999), out=one)
        time.sleep(0.01)

    for _ in range(2 if life.again else 4):
        until(3.5, fit)
        step += 500
        with life.save(path, step=step, bytes=total, part="write"):
            database.execute("BEGIN IMMEDIATE")
            for name, one in layers.items():
                row = (step, name, one.dtype.str, memoryview(one).cast("B"))
                database.execute("INSERT OR REPLACE INTO state VALUES (?, ?, ?, ?)", row)
            steps = [row[0] for row in database.execute("SELECT DISTINCT step FROM state ORDER BY step")]
            database.executemany("DELETE FROM state WHERE step = ?", [(old,) for old in steps[:-2]])
            database.execute("COMMIT")
    until(1.5, fit)
    if not life.again:
        database.close()
        life.start_again()


if __name__ == "__main__":
    run(globals())
