"""A rank of a job on several nodes in plain Python: all begin a save together, each writes its file of one folder.

Files are named as torch.distributed.checkpoint does: rank 0 writes what makes them whole once all have theirs.

They meet on this host, whatever they call the place: `MASTER_PORT` is all that is used of it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import time
from pathlib import Path

RANK, RANKS, PORT = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(os.environ["MASTER_PORT"])
CHUNK = os.urandom(4 << 20)
CHUNKS = 8
PICKLE = b"\x80\x04\x95"


class Meeting:
    """A barrier of all ranks."""

    def __init__(self) -> None:
        if RANK:
            self._links = [self._reached()]
            return
        with socket.create_server(("127.0.0.1", PORT)) as server:
            self._links = [server.accept()[0] for _ in range(RANKS - 1)]

    @staticmethod
    def _reached() -> socket.socket:
        while True:
            with contextlib.suppress(ConnectionRefusedError):
                return socket.create_connection(("127.0.0.1", PORT))
            time.sleep(0.05)

    def wait(self) -> None:
        """Go on when all are here."""
        if RANK:
            self._links[0].send(b"x")
            self._links[0].recv(1)
            return
        for link in self._links:
            link.recv(1)
        for link in self._links:
            link.send(b"x")


def main() -> None:
    """Train and save; a slow rank rests after each part of its file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--saves", type=int, default=4)
    parser.add_argument("--rest", type=float, default=0.0)
    told = parser.parse_args()
    meeting = Meeting()
    for step in range(100, 100 * told.saves + 1, 100):
        for _ in range(30):
            time.sleep(0.1)
        folder = told.dir / f"step_{step}"
        folder.mkdir(parents=True, exist_ok=True)
        meeting.wait()
        with (folder / f"__{RANK}_0.distcp").open("wb") as file:
            for _ in range(CHUNKS):
                file.write(CHUNK)
                file.flush()
                time.sleep(told.rest)
            os.fsync(file.fileno())
        meeting.wait()
        if not RANK:
            with (folder / ".metadata.tmp").open("wb") as file:
                file.write(PICKLE + bytes(10_000))
                os.fsync(file.fileno())
            (folder / ".metadata.tmp").rename(folder / ".metadata")
    time.sleep(1)


if __name__ == "__main__":
    main()
