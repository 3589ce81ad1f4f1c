"""As Flax did before Orbax: msgpack in memory, one write, renamed to `checkpoint_NN`; the last two are kept."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import msgpack
import numpy as np
from lives import Life, until

LAYERS, WIDTH = 10, 1024


def packed(params: dict[str, jax.Array], step: int) -> bytes:
    """Return the state as Flax has it: each array is an extension of msgpack."""
    arrays = {name: np.asarray(values) for name, values in params.items()}
    state = {"step": step, "params": {name: _extension(values) for name, values in arrays.items()}}
    whole: bytes = msgpack.packb(state)
    return whole


def _extension(values: np.ndarray) -> msgpack.ExtType:
    return msgpack.ExtType(1, msgpack.packb((values.shape, values.dtype.name, values.tobytes())))


def unpacked(_: int, blob: bytes) -> np.ndarray:
    """Return an array again."""
    shape, name, values = msgpack.unpackb(blob, max_bin_len=len(blob))
    return np.frombuffer(values, name).reshape(shape)


def main() -> None:
    """Train in two lives."""
    life = Life(__doc__)
    keys = jax.random.split(jax.random.key(1), LAYERS)
    params = {f"Dense_{at}": jax.random.normal(key, (WIDTH, WIDTH)) for at, key in enumerate(keys)}
    batch = jnp.ones((16, WIDTH))

    @jax.jit
    def forward(params: dict[str, jax.Array], batch: jax.Array) -> jax.Array:
        for values in params.values():
            batch = jnp.tanh(batch @ values)
        return batch

    def step() -> None:
        forward(params, batch).block_until_ready()

    def numbered() -> list[Path]:
        return sorted(life.folder.glob("checkpoint_*"), key=lambda path: int(path.name.removeprefix("checkpoint_")))

    start = 0
    if life.again:
        path = numbered()[-1]
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
                blob = packed(params, at)
            with row.part("write"):
                part = life.folder / f"checkpoint_{at}.tmp"
                part.write_bytes(blob)
                part.rename(path)
            del blob
            for old in numbered()[:-2]:
                old.unlink()
    until(1, step)
    if not life.again:
        life.start_again()


if __name__ == "__main__":
    main()
