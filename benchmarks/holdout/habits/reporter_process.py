"""A process of the framework sends each saved folder to a store over TCP, and deletes it; the trainer goes on."""

from __future__ import annotations

import multiprocessing
import shutil
import socket
import time
from multiprocessing.queues import Queue
from pathlib import Path

import torch
from fitted import Fitted
from lives import Life, size

FORK = multiprocessing.get_context("fork")


def store(listener: socket.socket) -> None:
    """Take what comes, and keep none of it."""
    while True:
        with listener.accept()[0] as peer:
            while peer.recv(1 << 20):
                pass


def send(todo: Queue[Path | None], address: tuple[str, int]) -> None:
    """Send each file of each folder, and delete the folder."""
    while (folder := todo.get()) is not None:
        for path in sorted(folder.iterdir()):
            with socket.create_connection(address) as peer, path.open("rb") as file:
                while piece := file.read(1 << 20):
                    peer.sendall(piece)
                    time.sleep(0.01)
        shutil.rmtree(folder)


def main() -> None:
    """Train, save four times."""
    life = Life(__doc__)
    todo: Queue[Path | None] = FORK.Queue()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = FORK.Process(target=store, args=(listener,), daemon=True)
        server.start()
        sender = FORK.Process(target=send, args=(todo, listener.getsockname()))
        sender.start()
        fitted = Fitted(9)
        for step in (100, 200, 300, 400):
            fitted.train(2.5)
            folder = life.folder / f"spool/checkpoint-{step}"
            with life.save(folder, step=step) as row, row.part("write"):
                folder.mkdir(parents=True)
                torch.save(fitted.state(step=step), folder / "state.pt")
                row.known["bytes"] = size(folder)
            todo.put(folder)
        fitted.train(4)
        todo.put(None)
        sender.join()
        server.kill()


if __name__ == "__main__":
    main()
