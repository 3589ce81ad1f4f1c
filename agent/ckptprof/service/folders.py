"""The folders that checkpoints are in: what is opened there wakes the sampler, so that even a short restore is seen."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable

from ckptprof_collectors.folderevents import (
    IN_CLOSE_NOWRITE,
    IN_CLOSE_WRITE,
    IN_CREATE,
    IN_ISDIR,
    IN_MOVED_TO,
    IN_OPEN,
    FolderEvent,
    FolderEvents,
)
from ckptprof_collectors.samples import FileEvent, text
from ckptprof_collectors.statx import FileStatus, statx

WAKING_BYTES = 1 << 20  # an opened file of this size may be a restore
_KINDS = (
    (IN_CLOSE_WRITE, "closed-written"),
    (IN_CLOSE_NOWRITE, "closed-read"),
    (IN_OPEN, "opened"),
)
MAX_DEPTH = 2  # of folders below one that is named, watched with it
MAX_BELOW = 64


class Folders:
    """Watches folders and tells what was opened; sees nothing, and costs nothing, where there is no inotify."""

    def __init__(self) -> None:
        """Open inotify if it can be had; `reason` says why not."""
        self.reason: str | None = None
        self._events: FolderEvents | None = None
        self._prefixes: dict[bytes, bytes] = {}
        self.woken = False
        self.woken_by_reading = False  # a file that was there already: it may be mapped, a new one is written
        try:
            self._events = FolderEvents()
        except OSError as error:
            self.reason = f"inotify: {error.strerror}"

    def fileno(self) -> int | None:
        """Return the descriptor to wait for, None if there is none."""
        return self._events.fd if self._events is not None else None

    def watch(self, folder: bytes, prefix: bytes = b"") -> None:
        """Watch a folder, reached through `prefix`, from now on; one that cannot be watched is left."""
        if self._events is None or not folder.startswith(b"/") or folder == b"/":
            return
        if self._events.watch(folder, prefix):
            self._prefixes[folder] = prefix
            if len(self._prefixes) > 4096:
                self._prefixes.pop(next(iter(self._prefixes)))

    def watch_checkpoint(self, path: bytes, prefix: bytes = b"") -> None:
        """Watch the folders in which the next checkpoint may appear after this file of one."""
        for folder in folders_of(path, prefix):
            self.watch(folder, prefix)

    def watch_place(self, place: bytes, prefix: bytes = b"") -> None:
        """Watch where a process may come to save: a folder, or the nearest one above it that is there already."""
        for _ in range(MAX_DEPTH + 1):
            if os.path.isdir(prefix + place):
                if not is_shared(prefix + place):
                    self.watch(place, prefix)
                return
            place = os.path.dirname(place)

    def watch_tree(self, folders: Iterable[bytes]) -> None:
        """Watch folders with those below them: what a restart may restore from. A file stands for its folder."""
        for folder in folders:
            if not os.path.isdir(folder):
                self.watch(os.path.dirname(folder))
                continue
            self.watch(folder)
            self._watch_below(folder, MAX_DEPTH)

    def _watch_below(self, folder: bytes, depth: int) -> None:
        try:
            with os.scandir(folder) as entries:
                below = [entry.path for _, entry in zip(range(1024), entries, strict=False) if _is_folder(entry)]
        except OSError:
            return
        for path in below[-MAX_BELOW:]:
            self.watch(path)
            if depth > 1:
                self._watch_below(path, depth - 1)

    def own(self, path: bytes) -> None:
        """Take note that we are about to open this file ourselves."""
        if self._events is not None:
            self._events.own(path)

    def take(self) -> list[FileEvent]:
        """Return what has happened; sets `woken` if somebody opened or made a file that may be a checkpoint."""
        if self._events is None:
            return []
        found = []
        for event in self._events.read():
            if event.mask & IN_ISDIR:
                if event.mask & (IN_CREATE | IN_MOVED_TO):
                    self.watch(event.path, self._prefixes.get(os.path.dirname(event.path), b""))
                continue
            told = self._tell(event)
            if told is not None:
                found.append(told)
        return found

    def _tell(self, event: FolderEvent) -> FileEvent | None:
        """Return what is worth telling: openings and closings of files that are large; a new file only wakes us."""
        if event.mask & (IN_CREATE | IN_MOVED_TO):
            self.woken = self.woken or bool(event.mask & IN_CREATE)
            return None
        kind = next((name for mask, name in _KINDS if event.mask & mask), None)
        status = self._status(event.path)
        if kind is None or status is None or not stat.S_ISREG(status.mode) or status.size < WAKING_BYTES:
            return None
        if kind == "opened":
            self.woken = self.woken_by_reading = True
        return FileEvent(event.at_ns, kind, status.device, status.inode, status.size, text(event.path))

    def _status(self, path: bytes) -> FileStatus | None:
        """Return the status of a file; seen from our own root once the process that led us to it has ended."""
        for prefix in dict.fromkeys((self._prefixes.get(os.path.dirname(path), b""), b"")):
            with contextlib.suppress(OSError):
                return statx(prefix + path)
        return None

    def close(self) -> None:
        """Give everything back."""
        if self._events is not None:
            self._events.close()
            self._events = None


def folders_of(path: bytes, prefix: bytes = b"") -> tuple[bytes, ...]:
    """Return the folder of a file, and the one above it where each checkpoint has a numbered folder of its own."""
    folder = os.path.dirname(path)
    above = os.path.dirname(folder)
    numbered = any(byte in b"0123456789" for byte in os.path.basename(folder))
    return (folder, above) if numbered and not is_shared(prefix + above) else (folder,)


def is_shared(folder: bytes) -> bool:
    """Return whether everybody makes files there, as in /tmp; or whether that cannot be seen."""
    try:
        return bool(os.stat(folder).st_mode & stat.S_ISVTX)
    except OSError:
        return True


def _is_folder(entry: os.DirEntry[bytes]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False
