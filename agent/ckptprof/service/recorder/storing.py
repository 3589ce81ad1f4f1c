"""Opening the store for a command that records."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from ckptprof.errors import StoreError
from ckptprof.model import Checkpoint
from ckptprof.service.recorder import messages
from ckptprof.service.recorder.recorder_database import RecorderDatabase
from ckptprof.service.recorder.writerthread import WriterThread
from ckptprof.store.location import path_of_database
from ckptprof.store.reader import StoreReader
from ckptprof.store.writer import Retention, StoreWriter

MAX_SAVED_PATHS = 4096
MAX_TRUNCATED_AGE_NS = 120_000_000_000  # a save truncated longer ago is not continued
MAX_FOLDERS = 128  # of these, the latest, for the sampler to watch


def open_writer(
    db: str | Path, *, shared: bool = False, retries: bool = False, retention: Mapping[str, int] = MappingProxyType({})
) -> tuple[WriterThread, tuple[str, ...]]:
    """Return the writer of the database at `db`, and the paths saved before; raises StoreError.

    `retries`: retry while the database is locked or its disk full. `retention`: arguments of the store's `Retention`.
    """
    path = path_of_database(db)
    database = RecorderDatabase(
        path, lambda: StoreWriter(path, retention=Retention(**retention)), shared=shared, retries=retries
    )
    return WriterThread(database, complain=messages.warn), saved_paths(db)


def saved_paths(db: str | Path) -> tuple[str, ...]:
    """Files and folders saved in earlier sessions; empty if they cannot be read."""
    try:
        with StoreReader(db) as reader:
            return tuple(reader.recent_paths(MAX_SAVED_PATHS))
    except StoreError:
        return ()


def truncated_saves(db: str | Path, now_wall_ns: int) -> list[Checkpoint]:
    """Return the saves truncated by the end of a recent session; empty if they cannot be read."""
    try:
        with StoreReader(db) as reader:
            return reader.interrupted_saves(now_wall_ns - MAX_TRUNCATED_AGE_NS, now_wall_ns)
    except StoreError:
        return []
