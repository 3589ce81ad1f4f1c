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
CUT_NS = 120_000_000_000  # a save truncated longer ago is not continued
MAX_FOLDERS = 128  # of these, the latest, for the sampler to watch


def open_writer(
    db: str | Path, *, shared: bool = False, waits: bool = False, kept: Mapping[str, int] = MappingProxyType({})
) -> tuple[WriterThread, tuple[str, ...]]:
    """Return the writer of the database at `db`, and the paths saved before; raises StoreError.

    `waits`: retry while the database is locked or its disk full. `kept`: arguments of the store's `Retention`.
    """
    path = to_path(db)
    database = Database(path, lambda: StoreWriter(path, retention=Retention(**kept)), shared=shared, waits=waits)
    return WriterThread(database, complain=messages.warn), saved_paths(db)


def saved_paths(db: str | Path) -> tuple[str, ...]:
    """Files and folders that earlier sessions saw saved; empty if they cannot be read."""
    try:
        with StoreReader(db) as reader:
            return tuple(reader.recent_paths(MAX_SAVED_PATHS))
    except StoreError:
        return ()


def cut_saves(db: str | Path, now_wall_ns: int) -> list[Checkpoint]:
    """Return the saves truncated by the end of a recent session; empty if they cannot be read."""
    try:
        with StoreReader(db) as reader:
            return reader.cut_saves(now_wall_ns - CUT_NS, now_wall_ns)
    except StoreError:
        return []
