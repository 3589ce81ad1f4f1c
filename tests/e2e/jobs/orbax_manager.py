"""Orbax's CheckpointManager, synchronous and asynchronous."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from life import Logbook, options, size_of, train, width


def main() -> None:
    """Save three times, or restore once and go on."""
    told = options("sync", "async")
    book = Logbook(told, "orbax", mode=told.variant)
    side = width(told.size_mb)
    keys = jax.random.split(jax.random.key(1), 2)
    weights = {f"layer{i}": jax.random.normal(key, (side, side)) for i, key in enumerate(keys)}
    moments = {"mu": jax.tree.map(jnp.sin, weights), "nu": jax.tree.map(jnp.square, weights)}
    state: dict[str, Any] = {"params": weights, **moments}
    inputs, step = jax.random.normal(keys[0], (4, side)), 0  # what compresses well would make a small checkpoint

    @jax.jit
    def update(state: dict[str, Any]) -> dict[str, Any]:
        def loss(params: dict[str, jax.Array]) -> jax.Array:
            return jnp.square(jnp.tanh(inputs @ params["layer0"]) @ params["layer1"]).mean()

        slope = jax.grad(loss)(state["params"])
        mu = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, state["mu"], slope)
        nu = jax.tree.map(lambda old, new: 0.99 * old + 0.01 * new**2, state["nu"], slope)
        moved = jax.tree.map(lambda p, m, n: p - 1e-3 * m / (jnp.sqrt(n) + 1e-8), state["params"], mu, nu)
        return {"params": moved, "mu": mu, "nu": nu}

    def learn() -> None:
        nonlocal state, step
        state = jax.block_until_ready(update(state))
        step += 1

    settings = ocp.CheckpointManagerOptions(max_to_keep=2, enable_async_checkpointing=told.variant == "async")
    learn()
    start_ns = time.time_ns()  # a restore begins where the manager reads what there is
    with ocp.CheckpointManager(told.dir.resolve(), options=settings) as manager:
        if told.resume:
            step = manager.latest_step()
            state = manager.restore(step, args=ocp.args.StandardRestore(state))
            book.add("restore", step, told.dir / str(step), start_ns, time.time_ns())
        for _ in range(told.saves):
            train(learn, told)
            save(manager, step, state, learn, book)


def save(manager: ocp.CheckpointManager, step: int, state: dict[str, Any], learn: Any, book: Logbook) -> None:
    """Save, and train on until it has ended if it goes on in the background."""
    path, saved = book.told.dir / str(step), dict(state)
    start_ns = time.time_ns()
    manager.save(step, args=ocp.args.StandardSave(saved))
    stall_ns = time.time_ns() - start_ns
    ended: list[int] = []

    def wait() -> None:
        manager.wait_until_finished()
        ended.append(time.time_ns())

    waiter = threading.Thread(target=wait)
    waiter.start()
    while book.mode == "async" and not ended:
        learn()
    waiter.join()
    book.add("save", step, path, start_ns, ended[0], stall_ns=stall_ns, size=lambda: size_of(Path(path)))


if __name__ == "__main__":
    main()
