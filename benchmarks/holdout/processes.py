"""Saves by other threads and processes than the one that trains, which waits for them or goes on."""

from __future__ import annotations

import io
import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from frame import MB, chunks, write
from rounds import State, Wait, named, raw
from saves import tensors

FORK = multiprocessing.get_context("fork")


def write_slowly(path: Path, *blobs: bytes | memoryview, pause: float = 0.05) -> None:
    """Write at 80 MB/s at most, or slower, and sync."""
    with path.open("wb", buffering=0) as stream:
        for blob in blobs:
            for chunk in chunks(blob):
                stream.write(chunk)
                time.sleep(pause)
        os.fsync(stream.fileno())


def in_process(state: State, path: Path) -> Wait:
    """Hand a copy to a process, and go on."""
    buffer = io.BytesIO()
    torch.save(tensors(state), buffer)
    writer = FORK.Process(target=write_slowly, args=(path, buffer.getvalue()))
    writer.start()
    return writer.join


def in_processes(state: State, path: Path) -> None:
    """Have two forked processes write a half each, and wait for both."""
    names = sorted(state)
    halves = [tensors({name: state[name] for name in names[at::2]}) for at in (0, 1)]
    writers = [
        FORK.Process(target=torch.save, args=(half, path.with_name(f"{path.stem}_part{at}.pt")))
        for at, half in enumerate(halves)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()


def in_thread(state: State, path: Path) -> Wait:
    """Hand a copy to a thread, and go on."""
    copy = {name: tensor.clone() for name, tensor in tensors(state).items()}

    def run() -> None:
        with path.open("wb") as stream:
            torch.save(copy, stream)
            os.fsync(stream.fileno())

    writer = threading.Thread(target=run)
    writer.start()
    return writer.join


def in_slow_thread(state: State, path: Path) -> Wait:
    """Hand a copy to a thread that takes its time, and go on."""
    writer = threading.Thread(target=write_slowly, args=(path, *(array.tobytes() for array in state.values())))
    writer.start()
    return writer.join


def in_pool(state: State, path: Path) -> None:
    """Have a thread for each array, and wait for all."""
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: write(path.with_name(f"{path.stem}.{name}.bin"), raw(state[name])), state))


def in_awaited_thread(state: State, path: Path) -> None:
    """Have one thread that takes its time, and wait for it."""
    writer = threading.Thread(target=write_slowly, args=(path, *map(raw, state.values())))
    writer.start()
    writer.join()


def in_spawned(state: State, path: Path) -> None:
    """Start a fresh Python for the save, send it everything, and wait."""
    writer = multiprocessing.get_context("spawn").Process(target=_write_state, args=(state, path))
    writer.start()
    writer.join()


def _write_state(state: State, path: Path) -> None:
    write(path, *map(raw, state.values()))


def as_snapshot(state: State, path: Path) -> Wait:
    """Fork: the child writes the memory as it was, and training changes its own."""
    child = os.fork()
    if child == 0:
        write_slowly(path, *map(raw, state.values()))
        os._exit(0)
    for array in state.values():
        np.multiply(array, 1.0001, out=array)
    return lambda: os.waitpid(child, 0)


def detached(state: State, path: Path) -> Wait:
    """Fork twice, so that the writer is nobody's child."""
    ended, end = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            write_slowly(path, *map(raw, state.values()))
        os._exit(0)
    os.close(end)
    os.waitpid(child, 0)

    def wait() -> None:
        os.read(ended, 1)  # until the writer has closed the other end
        os.close(ended)

    return wait


class _Daemon:
    """A process that writes for all saves; it is started by the first one."""

    def __init__(self) -> None:
        self.inbox = FORK.Queue()
        self.mine, self.its = FORK.Pipe()
        self.process: Any = None

    def start(self, run: Callable[[_Daemon], None]) -> None:
        """Start it, if it is not there."""
        if self.process is None:
            self.process = FORK.Process(target=run, args=(self,), daemon=True)
            self.process.start()

    def told(self) -> Wait:
        """Return what waits until it has answered."""
        return self.mine.recv


DAEMON = _Daemon()


def _take_pipe(daemon: _Daemon) -> None:
    while True:
        path, count = daemon.its.recv()
        with path.open("wb", buffering=0) as stream:
            for _ in range(count):
                stream.write(daemon.its.recv_bytes())
                time.sleep(0.03)
            os.fsync(stream.fileno())
        daemon.its.send("written")


def piped(state: State, path: Path) -> None:
    """Feed a process through a pipe, which holds training as long as it takes."""
    DAEMON.start(_take_pipe)
    pieces = [chunk for array in state.values() for chunk in chunks(raw(array), 2 * MB)]
    DAEMON.mine.send((path, len(pieces)))
    for piece in pieces:
        DAEMON.mine.send_bytes(piece)
    DAEMON.told()()


def _take_queue(daemon: _Daemon) -> None:
    while True:
        path, blobs = daemon.inbox.get()
        write_slowly(path, *blobs)
        daemon.its.send("written")


def queued(state: State, path: Path) -> Wait:
    """Put a copy into a queue, which a thread sends to a process."""
    DAEMON.start(_take_queue)
    DAEMON.inbox.put((path, [array.tobytes() for array in state.values()]))
    return DAEMON.told()


_BEFORE: list[Wait] = []


def waits_for_previous(state: State, path: Path) -> Wait:
    """Wait for the previous save, then hand a copy to a process, which takes longer than training does."""
    for wait in _BEFORE:
        wait()
    blobs = [array.tobytes() for array in state.values()]
    writer = FORK.Process(target=write_slowly, args=(path, *blobs), kwargs={"pause": 0.2})
    writer.start()
    _BEFORE[:] = [writer.join]
    return lambda: sum(map(len, blobs))  # it is not written yet


PROCESSES = named(
    [
        in_process,
        in_processes,
        in_thread,
        in_slow_thread,
        in_pool,
        in_awaited_thread,
        in_spawned,
        as_snapshot,
        detached,
        piped,
        queued,
        waits_for_previous,
    ]
)
