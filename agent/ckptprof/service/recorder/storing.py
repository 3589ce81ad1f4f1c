"""Opening the store for a command that records."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from ckptprof.errors import StoreError
from ckptprof.model import Checkpoint
from ckptprof.service.recorder import messages
from ckptprof.service.recorder.database import Database
from ckptprof.service.recorder.writerthread import WriterThread
from ckptprof.store.location import to_path
from ckptprof.store.reader import StoreReader
from ckptprof.store.writer import Retention, StoreWriter

MAX_SAVED_PATHS = 4096
CUT_NS = 120_000_000_000  # a save that was cut longer ago is continued by nothing
MAX_FOLDERS = 128  # of these, the latest, that a sampler is told to watch


def open_writer(
    db: str | Path, *, shared: bool = False, waits: bool = False, kept: Mapping[str, int] = MappingProxyType({})
) -> tuple[WriterThread, tuple[str, ...]]:
    """Return the writer of the database at `db`, and the paths that were saved before; raises StoreError.

    `waits`: a database that is held, or a disk that is full, is waited for. `kept` is what the store's `Retention`
    takes, where that is not left to it.
    """
    path = to_path(db)
    database = Database(path, lambda: StoreWriter(path, retention=Retention(**kept)), shared=shared, waits=waits)
    return WriterThread(database, complain=messages.warn), saved_paths(db)


def saved_paths(db: str | Path) -> tuple[str, ...]:
    """Return the files and folders that earlier sessions saw being saved; nothing if they cannot be read."""
    try:
        with StoreReader(db) as reader:
            return tuple(reader.recent_paths(MAX_SAVED_PATHS))
    except StoreError:
        return ()


def cut_saves(db: str | Path, now_wall_ns: int) -> list[Checkpoint]:
    """Return the saves in whose midst the watch ended a moment ago; nothing if they cannot be read."""
    try:
        with StoreReader(db) as reader:
            return reader.cut_saves(now_wall_ns - CUT_NS, now_wall_ns)
    except StoreError:
        return []
