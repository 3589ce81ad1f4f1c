"""A job that saves in one way, twice, and logs for how long its loop was held: the time that the call took."""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.distributed import TCPStore, checkpoint, init_process_group
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

Done = Callable[[], bool]
STEP_SECONDS = 0.02


def write(state: dict[str, torch.Tensor], path: str) -> None:
    """Save and sync."""
    with Path(path).open("wb") as stream:
        torch.save(state, stream)
        stream.flush()
        os.fsync(stream.fileno())


def in_line(state: dict[str, torch.Tensor], path: str) -> Done:
    """Save in the thread that trains."""
    write(state, path)
    return lambda: True


def thread(state: dict[str, torch.Tensor], path: str, *, join: bool = False) -> Done:
    """Save in a thread."""
    writer = threading.Thread(target=write, args=(state, path))
    writer.start()
    if join:
        writer.join()
    return lambda: not writer.is_alive()


def child(state: dict[str, torch.Tensor], path: str, *, how: str = "fork", join: bool = False) -> Done:
    """Save in a process."""
    writer = multiprocessing.get_context(how).Process(target=write, args=(state, path))
    writer.start()
    if join:
        writer.join()
    return lambda: not writer.is_alive()


def dcp(state: dict[str, torch.Tensor], path: str, *, threads: int = 1) -> Done:
    """Save with PyTorch DCP."""
    checkpoint.save(state, storage_writer=checkpoint.FileSystemWriter(path, thread_count=threads))
    return lambda: True


def dcp_async(state: dict[str, torch.Tensor], path: str, *, how: str = "thread") -> Done:
    """Save with PyTorch DCP in the background."""
    answer: Any = checkpoint.async_save(state, checkpoint_id=path, async_checkpointer_type=AsyncCheckpointerType(how))
    return answer.done  # type: ignore[no-any-return]


@functools.cache
def orbax_checkpointer(*, background: bool) -> Any:
    """Return Orbax's checkpointer, made once."""
    import orbax.checkpoint as ocp  # noqa: PLC0415 - only where it is installed

    return (ocp.AsyncCheckpointer if background else ocp.Checkpointer)(ocp.StandardCheckpointHandler())


def orbax(state: dict[str, torch.Tensor], path: str, *, background: bool = False) -> Done:
    """Save with Orbax."""
    import orbax.checkpoint as ocp  # noqa: PLC0415 - only where it is installed

    arrays = {name: tensor.numpy() for name, tensor in state.items()}
    checkpointer = orbax_checkpointer(background=background)
    checkpointer.save(path, args=ocp.args.StandardSave(arrays))
    return lambda: Path(path).exists()


WAYS: dict[str, Callable[[dict[str, torch.Tensor], str], Done]] = {
    "in-line": in_line,
    "thread": thread,
    "thread-joined": functools.partial(thread, join=True),
    "fork": child,
    "fork-joined": functools.partial(child, join=True),
    "spawn": functools.partial(child, how="spawn"),
    "spawn-joined": functools.partial(child, how="spawn", join=True),
    "dcp": dcp,
    "dcp-threads": functools.partial(dcp, threads=4),
    "dcp-async": dcp_async,
    "dcp-process": functools.partial(dcp_async, how="process"),
    "orbax": orbax,
    "orbax-async": functools.partial(orbax, background=True),
}


def train(seconds: float, *, sleeps: bool, until: Done = lambda: True) -> None:
    """Go on with steps for a while, and until something is done."""
    end = time.monotonic() + seconds
    work = torch.randn(200, 200)
    while time.monotonic() < end or not until():
        if sleeps:
            time.sleep(STEP_SECONDS)
        else:
            for _ in range(10):
                work = torch.tanh(work @ work)


def prepare(way: str) -> None:
    """Import what would be imported in the first save, and make the group that DCP asks for."""
    if way.startswith("dcp"):
        store = TCPStore("127.0.0.1", 0, 1, is_master=True)
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(store.port))
        init_process_group("gloo", store=store, rank=0, world_size=1)
    if way.startswith("orbax"):
        orbax_checkpointer(background=way == "orbax-async")


def main() -> None:
    """Train, save, train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("way", choices=list(WAYS))
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--truth", type=Path, required=True)
    parser.add_argument("--size-mb", type=int, default=128)
    parser.add_argument("--sleeps", action="store_true", help="a step is a sleep, not work")
    options = parser.parse_args()
    torch.set_num_threads(1)
    prepare(options.way)
    options.dir.mkdir(parents=True, exist_ok=True)
    state = {f"w{i}": torch.randn(options.size_mb << 15) for i in range(8)}
    train(1.8, sleeps=options.sleeps)
    suffix = "" if options.way.startswith(("dcp", "orbax")) else ".pt"
    with options.truth.open("a", buffering=1) as truth:
        for number in (1, 2):
            begun = time.monotonic()
            done = WAYS[options.way](state, str(options.dir / f"step_{number}{suffix}"))
            truth.write(json.dumps({"step": number, "held": time.monotonic() - begun}) + "\n")
            train(2.0, sleeps=options.sleeps, until=done)
    os._exit(0)  # a group or a pool that waits for others says nothing about saves


if __name__ == "__main__":
    main()
