"""The database of a recorder; only this process uses SQL."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from ckptprof.service.recorder import messages
from ckptprof.store.problems import StoreBusyError, StoreFullError
from ckptprof.store.writer import StoreWriter

BUSY_SECONDS = 3.0  # each writer locks a shared database for much less
_BUSY_AGAIN_SECONDS = 0.05


class RecorderDatabase:
    """The database of a recorder: reopened if its file was removed; a shared one is closed between writes."""

    def __init__(
        self, path: Path, open_store: Callable[[], StoreWriter], *, shared: bool, retries: bool = False
    ) -> None:
        """Open it; raises StoreError, StoreBusyError if another ckptprof keeps it locked.

        `retries`: a lock and a full disk are no errors; `writer` retries. A read-only mount is an error: it stays
        read-only in the mount namespace of a service until the service restarts.
        """
        self.path = path
        self._open_store = open_store
        self._shared = shared
        self._writer: StoreWriter | None = None
        self._identity: tuple[int, int] | None = None
        self.damaged_count = 0  # databases that were set aside
        with contextlib.suppress(*(StoreBusyError, StoreFullError) if retries else ()):
            self.writer()
        self.release()

    def writer(self) -> StoreWriter:
        """Return the writer, opened if necessary; raises StoreError."""
        if self._writer is not None and self._identity != _identity(self._writer.path):
            messages.warn(f"{self._writer.path} was removed or replaced: starting a new database")
            self.close()
        if self._writer is None:
            self._writer = self._open_with_retries()
            self._identity = _identity(self._writer.path)
            self._report_set_aside(self._writer)
        return self._writer

    def set_aside_damaged(self) -> bool:
        """Set a damaged database aside; return whether `writer` can start a new one."""
        writer, self._writer = self._writer, None
        if writer is None or not writer.abandon():
            return False
        self._report_set_aside(writer)
        return True

    def _report_set_aside(self, writer: StoreWriter) -> None:
        if writer.set_aside_path is not None:
            self.damaged_count += 1
            messages.warn(f"{writer.set_aside_reason}: retained as {writer.set_aside_path}, starting a new database")

    def _open_with_retries(self) -> StoreWriter:
        deadline = time.monotonic() + BUSY_SECONDS
        while self._shared and time.monotonic() < deadline:
            with contextlib.suppress(StoreBusyError):
                return self._open_store()
            time.sleep(_BUSY_AGAIN_SECONDS)
        return self._open_store()

    def release(self) -> None:
        """Close a shared database between writes; raises StoreError."""
        if self._shared:
            self.close()

    def close(self) -> None:
        """Close it; `writer` reopens it. Raises StoreError."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_dev, state.st_ino
