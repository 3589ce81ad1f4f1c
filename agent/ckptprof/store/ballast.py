"""A file of reserved space beside the database, given back to a full disk.

On a full disk SQLite cannot even delete (measured: DELETE and a WAL checkpoint fail with SQLITE_FULL), so room has to
be kept for the deletion that makes room.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


class Ballast:
    """Keeps `size_bytes` on disk, once there is plenty of room; 0 keeps none."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        """Only remember where; nothing is written yet."""
        self._path = path.with_name(path.name + ".ballast")
        self._size_bytes = size_bytes

    def keep(self) -> None:
        """Make the file unless it is there; does nothing while less than four times its size is free."""
        if not self._size_bytes or os.path.lexists(self._path):
            return
        state = os.statvfs(self._path.parent)
        if state.f_bavail * state.f_frsize < 4 * self._size_bytes:
            return
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, self._size_bytes)
        except OSError:
            self.drop()
        finally:
            os.close(fd)

    def drop(self) -> bool:
        """Give the space back; return whether there was any."""
        with contextlib.suppress(OSError):
            self._path.unlink()
            return True
        return False
