"""Opening the store for a command that records."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ckptprof.errors import StoreError
from ckptprof.service import messages
from ckptprof.service.keeper import Keeper

if TYPE_CHECKING:
    from ckptprof.store.writer import StoreWriter

MAX_SAVED_PATHS = 4096
MAX_FOLDERS = 128  # of these, the latest, that a sampler is told to watch
BUSY_SECONDS = 3.0  # a shared database is held by each writer for much less
_BUSY_AGAIN_SECONDS = 0.05


class Database:
    """The database of a recorder: opened again where its file was removed, and given back meanwhile if shared."""

    def __init__(self, opened: Callable[[], StoreWriter], *, shared: bool) -> None:
        """Open it; raises StoreError, StoreBusyError if another ckptprof does not let go of it."""
        self._opened = opened
        self._shared = shared
        self._writer: StoreWriter | None = None
        self._identity: tuple[int, int] | None = None
        self.path = self.writer().path
        self.rest()

    def writer(self) -> StoreWriter:
        """Return the writer, opened if need be; raises StoreError."""
        if self._writer is not None and self._identity != _identity(self._writer.path):
            messages.warn(f"{self._writer.path} was removed or replaced: a new one is begun")
            self.close()
        if self._writer is None:
            self._writer = self._patiently()
            self._identity = _identity(self._writer.path)
        return self._writer

    def _patiently(self) -> StoreWriter:
        from ckptprof.store.lock import StoreBusyError  # noqa: PLC0415 - as below

        deadline = time.monotonic() + BUSY_SECONDS
        while self._shared and time.monotonic() < deadline:
            with contextlib.suppress(StoreBusyError):
                return self._opened()
            time.sleep(_BUSY_AGAIN_SECONDS)
        return self._opened()

    def rest(self) -> None:
        """Nothing is to be written for a while: let others write; raises StoreError."""
        if self._shared:
            self.close()

    def close(self) -> None:
        """Close it; `writer` opens it again. Raises StoreError."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_dev, state.st_ino


def open_keeper(db: str | Path, *, shared: bool = False) -> tuple[Keeper, tuple[str, ...]]:
    """Return the keeper of the database at `db`, and the paths that were saved before; raises StoreError."""
    from ckptprof.store.writer import StoreWriter  # noqa: PLC0415 - imports SQLAlchemy: the sampler is started first

    database = Database(lambda: StoreWriter(db), shared=shared)
    return Keeper(database, complain=messages.warn), saved_paths(db)


def saved_paths(db: str | Path) -> tuple[str, ...]:
    """Return the files and folders that earlier sessions saw being saved; nothing if they cannot be read."""
    from ckptprof.store.reader import StoreReader  # noqa: PLC0415

    try:
        with StoreReader(db) as reader:
            return tuple(reader.recent_paths(MAX_SAVED_PATHS))
    except StoreError:
        return ()
