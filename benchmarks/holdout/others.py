"""What a job writes and reads that is no checkpoint, in a folder of its own: nothing may be told of it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
from pathlib import Path

from frame import MB, chunks, write
from processes import FORK
from rounds import State, Way, raw

_COUNT = [0]


def _next() -> int:
    _COUNT[0] += 1
    return _COUNT[0]


def _serve(listener: socket.socket, size_mb: int) -> None:
    with listener.accept()[0] as peer:
        block = os.urandom(MB)
        for _ in range(size_mb):
            peer.sendall(block)


def downloaded(_state: State, folder: Path) -> None:
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


def logged(_state: State, folder: Path) -> None:
    """Write what a step was, and some megabytes of histograms."""
    with (folder / "train.log").open("a") as log, (folder / "events.out.tfevents.1").open("ab") as events:
        for step in range(200):
            print(json.dumps({"step": step, "loss": 1.0 / (step + 1), "at": time.time()}), file=log, flush=True)
            events.write(os.urandom(16 << 10))
            events.flush()


def unsynced(_state: State, folder: Path) -> None:
    """Let another program write much that is not on disk yet."""
    target = folder / f"dump.{_next()}"  # a new one: ext4 writes what is truncated back at once
    subprocess.run(["dd", "if=/dev/zero", f"of={target}", "bs=1M", "count=160", "status=none"], check=True)


def spilled(state: State, folder: Path) -> None:
    """Sort through files that are read again, and deleted."""
    names = [folder / f"spill.{at}" for at in range(4)]
    for name, array in zip(names, state.values(), strict=True):
        write(name, raw(array)[: 16 * MB])
    for name in names:
        with name.open("rb") as stream:
            while stream.read(MB):
                pass
        name.unlink()


def scratch(state: State, folder: Path) -> None:
    """Write activations to a file without a name."""
    with contextlib.ExitStack() as stack:
        opened = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600)
        stack.callback(os.close, opened)
        for array in state.values():
            for chunk in chunks(raw(array)[: 16 * MB]):
                os.write(opened, chunk)


OTHERS: dict[str, tuple[Way, int]] = {  # with how often in a round
    "downloaded": (downloaded, 1),
    "logged": (logged, 5),
    "unsynced": (unsynced, 1),
    "spilled": (spilled, 1),
    "scratch": (scratch, 10),
}
