"""Databases, logs, journals, mail and videos: what writes to disks all day."""

from __future__ import annotations

import mmap
import os
import sqlite3
import sys
import time
from pathlib import Path

MB = 1 << 20


def sqlite() -> None:
    """Load 60 MB in transactions, index, and vacuum into a second file."""
    database = sqlite3.connect("metrics.db")
    database.execute("pragma journal_mode=wal")
    database.execute("create table t (n integer primary key, body blob)")
    for batch in range(15):
        with database:
            database.executemany("insert into t (body) values (?)", ((os.urandom(2000),) for _ in range(2000)))
        time.sleep(0.02 * (batch % 3))
    database.execute("vacuum into 'best_model_state.sqlite'")
    database.close()


def mapped() -> None:
    """Write 120 MB through a mapping, as LMDB does with its own."""
    with Path("data.mdb").open("wb+") as stream:
        stream.truncate(160 * MB)
        with mmap.mmap(stream.fileno(), 160 * MB) as view:
            for n in range(120):
                at = (n * 37 % 160) * MB
                view[at : at + MB] = os.urandom(MB)
                if n % 30 == 29:
                    view.flush()


def log() -> None:
    """Append 60 MB of lines to one log."""
    line = b"2026-11-21 worker answered a request in 12 ms\n" * 2000
    with Path("server.log").open("ab", buffering=0) as stream:
        for _ in range(60 * MB // len(line)):
            stream.write(line)
            time.sleep(0.002)


def journal() -> None:
    """Append to a file that is allocated ahead and mapped, as journald does, then make it an archive."""
    with Path("system.journal").open("wb+") as stream:
        os.posix_fallocate(stream.fileno(), 0, 64 * MB)
        with mmap.mmap(stream.fileno(), 64 * MB) as view:
            for n in range(64):
                view[n * MB : (n + 1) * MB] = os.urandom(MB)
            view.flush()
    Path("system.journal").rename("system@0001.journal")


def mail() -> None:
    """Deliver 2500 letters of 16 KB: each is written to tmp/, synced now and then, and moved to new/, later to cur/."""
    for name in ("tmp", "new", "cur"):
        Path(name).mkdir()
    for n in range(2500):
        letter = Path("tmp") / f"{n}.host"
        letter.write_bytes(b"Subject: x\n\n" + os.urandom(16000))
        letter.rename(Path("new") / letter.name)
    for letter in Path("new").iterdir():
        letter.rename(Path("cur") / letter.name)


def video() -> None:
    """Write two films of 50 MB at a steady rate, each with a header that is filled in at the end."""
    for name in ("render.mkv", "camera_0001.raw"):
        with Path(name).open("wb") as stream:
            stream.write(bytes(4096))
            for _ in range(100):
                stream.write(os.urandom(MB // 2))
                time.sleep(0.005)
            stream.seek(0)
            stream.write(b"\x1aE\xdf\xa3" * 64)


def imitate() -> None:
    """Append log lines to files that are named as frameworks name theirs."""
    names = ("checkpoint-500/model.safetensors", "global_step5/mp_rank_00_model_states.pt", "iter_0000100/common.pt")
    line = b"this is a line of a log in a file with a misleading name\n" * 500
    for name in names:
        Path(name).parent.mkdir()
        with Path(name).open("ab", buffering=0) as stream:
            for _ in range(30 * MB // len(line)):
                stream.write(line)
                time.sleep(0.001)


if __name__ == "__main__":
    {work.__name__: work for work in (sqlite, mapped, log, journal, mail, video, imitate)}[sys.argv[1]]()
