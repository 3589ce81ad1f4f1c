"""Publication for readers of the group: a copy of the main file, which is consistent between two WAL checkpoints.

They may open no other file, because a lock on the log's index would block the writer. Only the writer moves the log
into the main file, and stores a sequence number next to it that is odd during that: a copy made between two equal, even
numbers is consistent (ADR 0019).
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from sqlite3 import Connection, OperationalError

from ckptprof.errors import StoreError
from ckptprof.store.connection import copy_ownership, file_mode, is_open_to_others, open_reader
from ckptprof.store.location import printable_path
from ckptprof.store.lock import is_writer_alive

_SEQUENCE_BYTES = 8
_MAX_MEMORY_COPY_BYTES = 64 << 20  # a larger copy is a file on disk
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - each file in it is made with O_EXCL, for its owner alone
_COPY_TIMEOUT_SECONDS = 10.0  # a checkpoint waits for the disk
_RETRY_SECONDS = 0.05


def _sequence_path(path: Path) -> Path:
    return path.with_name(path.name + ".published")


class Publication:
    """Moves the log of a writer into the main file; the number exists only where others may read that."""

    def __init__(self, path: Path, connection: Connection) -> None:
        """Publish the stored data, and let the group read a new database of the service; raises as `renew`."""
        self._connection = connection
        self._fd = -1
        self.is_log_pinned = False  # by a reader of its owner or root: then it cannot restart, and grows
        state = path.stat()
        mode = file_mode(path) | (state.st_mode & 0o777)
        if is_open_to_others(mode):
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._fd = os.open(_sequence_path(path), flags, mode)
            os.fchmod(self._fd, mode)
            copy_ownership(self._fd, state)
        try:
            with contextlib.suppress(OperationalError):  # a full disk: space is freed at the next write
                self.renew()
            if state.st_mode & 0o777 != mode:
                path.chmod(mode)
        except BaseException:
            self.close()
            raise

    def renew(self) -> None:
        """Move the log into the main file, as far as no reader pins it; raises sqlite3.Error and OSError."""
        number = self._read_sequence()
        self._write_sequence(number | 1)
        _, frames, done = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        self.is_log_pinned = done < frames
        if not (self.is_log_pinned and number % 2):  # an interrupted publication is complete now
            self._write_sequence((number | 1) + 1)

    def _read_sequence(self) -> int:
        return int.from_bytes(os.pread(self._fd, _SEQUENCE_BYTES, 0), "little") if self._fd >= 0 else 0

    def _write_sequence(self, number: int) -> None:
        if self._fd >= 0:
            os.pwrite(self._fd, number.to_bytes(_SEQUENCE_BYTES, "little"), 0)

    def close(self) -> None:
        """Close the file, without changing the number; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def read_sequence(path: Path) -> int | None:
    """Sequence number of the published copy; None where the database is not readable by others."""
    try:
        return int.from_bytes(_sequence_path(path).read_bytes()[:_SEQUENCE_BYTES], "little")
    except OSError:
        return None


def open_copy(path: Path) -> tuple[Connection, int]:
    """Open a copy of a published database; raises StoreError, OSError and sqlite3.Error."""
    deadline = time.monotonic() + _COPY_TIMEOUT_SECONDS
    while (before := read_sequence(path)) is not None:
        if before % 2 == 0:
            with _temporary_copy(path) as name:
                if read_sequence(path) == before:
                    return open_reader(name, immutable=True), before
        if time.monotonic() >= deadline:
            break
        time.sleep(_RETRY_SECONDS)
    if is_writer_alive(path) is False:
        text = f"{printable_path(path)} is half written: its writer was killed, or its disk failed"
        raise StoreError(text, hint="start it again: it completes the database")
    raise StoreError(
        f"{printable_path(path)} is being written all the time", hint="try again when its disk is less busy"
    )


@contextmanager
def _temporary_copy(path: Path) -> Iterator[Path]:
    """Yield a copy of a file, whose name is removed after the block."""
    with path.open("rb") as source, contextlib.ExitStack() as stack:
        size = os.fstat(source.fileno()).st_size
        folders = [Path(tempfile.gettempdir())]
        if size <= _MAX_MEMORY_COPY_BYTES and os.access(_SHARED_MEMORY, os.W_OK):
            folders.insert(0, _SHARED_MEMORY)
        for folder in folders:
            target = stack.enter_context(tempfile.NamedTemporaryFile(prefix="ckptprof-", dir=folder))
            try:
                offset = 0
                while copied_bytes := os.sendfile(target.fileno(), source.fileno(), offset, size):
                    offset += copied_bytes
            except OSError as error:
                if folder is folders[-1]:
                    text = f"{folder} has no space for a copy of {printable_path(path)}: {error.strerror}"
                    raise StoreError(text, hint="set TMPDIR to a folder with more space") from error
            else:
                break
        yield Path(target.name)
