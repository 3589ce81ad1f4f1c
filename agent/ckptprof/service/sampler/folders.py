"""The folders that checkpoints are in: what is opened there wakes the sampler, so that even a short restore is seen.

What lies on a mount that may hang is touched in a thread that hangs with it only; its answer is taken with the events.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from ckptprof_collectors.files.folderevents import (
    IN_CLOSE_NOWRITE,
    IN_CLOSE_WRITE,
    IN_CREATE,
    IN_ISDIR,
    IN_MOVED_TO,
    IN_OPEN,
    FolderEvent,
    FolderEvents,
)
from ckptprof_collectors.files.statx import FileStatus, statx
from ckptprof_collectors.files.workers import WORKERS, WorkerPool
from ckptprof_collectors.mounts.failuredomains import LOCAL
from ckptprof_collectors.samples import FileEvent, text

WAKING_BYTES = 1 << 20  # an opened file of this size may be a restore
_KINDS = (
    (IN_CLOSE_WRITE, "closed-written"),
    (IN_CLOSE_NOWRITE, "closed-read"),
    (IN_OPEN, "opened"),
)
MAX_DEPTH = 2  # of folders below one that is named, watched with it
MAX_BELOW = 64
MAX_JUDGED = 1024


class Folders:
    """Watches folders and tells what was opened; sees nothing, and costs nothing, where there is no inotify."""

    def __init__(self, workers: WorkerPool = WORKERS) -> None:
        """Open inotify if it can be had; `reason` says why not."""
        self.reason: str | None = None
        self._workers = workers
        self._events: FolderEvents | None = None
        self._prefixes: dict[bytes, bytes] = {}
        self._added: deque[tuple[bytes, bytes, int]] = deque()  # by threads: what the kernel answered
        self._told: deque[FileEvent] = deque()  # by threads, too
        self._asked: set[tuple[bytes, bytes]] = set()  # what they have not answered
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
        if self._events is not None and not self._events.knows(folder):
            self._find(folder, prefix, lambda: [folder])

    def watch_checkpoint(self, path: bytes, prefix: bytes = b"") -> None:
        """Watch the folders in which the next checkpoint may appear after this file of one."""
        for folder in folders_of(path, prefix, self._workers):
            self.watch(folder, prefix)

    def watch_place(self, place: bytes, prefix: bytes = b"") -> None:
        """Watch where a process may come to save: a folder, or the nearest one above it that is there already."""
        self._find(place, prefix, lambda: _nearest(place, prefix))

    def watch_tree(self, folders: Iterable[bytes]) -> None:
        """Watch folders with those below them: what a restart may restore from. A file stands for its folder."""
        for folder in folders:
            self._find(folder, b"", partial(_tree, folder))

    def _find(self, place: bytes, prefix: bytes, found: Callable[[], Iterable[bytes]]) -> None:
        """Watch what is found at a place: at once, or when a thread has found it if that may hang."""
        events = self._events
        if events is None or not place.startswith(b"/"):
            return

        def add() -> bool:
            for folder in found():
                if folder.startswith(b"/") and folder != b"/":
                    self._added.append((folder, prefix, events.add(folder, prefix)))
            self._asked.discard((place, prefix))
            return False

        domain = self._workers.mounts.domain_of(prefix, place)
        if domain == LOCAL:
            add()
            self._settle(events)
        elif (place, prefix) not in self._asked:
            self._asked.add((place, prefix))
            if not self._workers.put(domain, add):
                self._asked.discard((place, prefix))

    def _settle(self, events: FolderEvents) -> None:
        while self._added:
            folder, prefix, descriptor = self._added.popleft()
            if events.added(folder, descriptor):
                self._prefixes[folder] = prefix
                if len(self._prefixes) > 4096:
                    self._prefixes.pop(next(iter(self._prefixes)))

    def own(self, path: bytes) -> None:
        """Take note that we are about to open this file ourselves."""
        if self._events is not None:
            self._events.own(path)

    def take(self) -> list[FileEvent]:
        """Return what has happened; sets `woken` if somebody opened or made a file that may be a checkpoint."""
        if self._events is None:
            return []
        self._settle(self._events)
        found = [self._told.popleft() for _ in range(len(self._told))]
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
        folder = os.path.dirname(event.path)
        prefix = self._prefixes.get(folder, b"")
        domain = self._workers.mounts.domain_of(prefix, folder)
        if domain != LOCAL:
            # Whether it is large is learnt too late for a short restore
            if event.mask & IN_OPEN:
                self.woken = self.woken_by_reading = True
            self._workers.put(domain, lambda: self._tell_later(event, prefix))
            return None
        told = _file_event(event, prefix)
        if told is not None and told.kind == "opened":
            self.woken = self.woken_by_reading = True
        return told

    def _tell_later(self, event: FolderEvent, prefix: bytes) -> bool:
        told = _file_event(event, prefix)
        if told is not None:
            self._told.append(told)
        return False

    def close(self) -> None:
        """Give everything back."""
        if self._events is not None:
            self._events.close()
            self._events = None


def folders_of(path: bytes, prefix: bytes = b"", workers: WorkerPool = WORKERS) -> tuple[bytes, ...]:
    """Return the folder of a file, and the one above it where each checkpoint has a numbered folder of its own."""
    folder = os.path.dirname(path)
    above = os.path.dirname(folder)
    numbered = any(byte in b"0123456789" for byte in os.path.basename(folder))
    return (folder, above) if numbered and not seems_shared(above, prefix, workers) else (folder,)


def is_shared(folder: bytes) -> bool:
    """Return whether everybody makes files there, as in /tmp; or whether that cannot be seen."""
    try:
        return bool(os.stat(folder).st_mode & stat.S_ISVTX)
    except OSError:
        return True


_judged: dict[bytes, bool] = {}  # of folders that may hang, whether they are shared


def seems_shared(folder: bytes, prefix: bytes = b"", workers: WorkerPool = WORKERS) -> bool:
    """Return the same without touching what may hang: of that, what was found since it was asked for first.

    Until then it is taken for a folder of one user, as most are: a look too many costs less than a save that is missed.
    """
    domain = workers.mounts.domain_of(prefix, folder)
    place = prefix + folder
    if domain == LOCAL:
        return is_shared(place)
    if place not in _judged:
        if len(_judged) >= MAX_JUDGED:
            _judged.clear()
        _judged[place] = False

        def judge() -> bool:
            _judged[place] = is_shared(place)
            return False

        workers.put(domain, judge)
    return _judged.get(place, False)


def _nearest(place: bytes, prefix: bytes) -> Iterator[bytes]:
    for _ in range(MAX_DEPTH + 1):
        if os.path.isdir(prefix + place):
            if not is_shared(prefix + place):
                yield place
            return
        place = os.path.dirname(place)


def _tree(folder: bytes) -> Iterator[bytes]:
    if os.path.isdir(folder):
        yield folder
        yield from _below(folder, MAX_DEPTH)
    else:
        yield os.path.dirname(folder)


def _below(folder: bytes, depth: int) -> Iterator[bytes]:
    try:
        with os.scandir(folder) as entries:
            below = [entry.path for _, entry in zip(range(1024), entries, strict=False) if _is_folder(entry)]
    except OSError:
        return
    for path in below[-MAX_BELOW:]:
        yield path
        if depth > 1:
            yield from _below(path, depth - 1)


def _is_folder(entry: os.DirEntry[bytes]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _file_event(event: FolderEvent, prefix: bytes) -> FileEvent | None:
    kind = next((name for mask, name in _KINDS if event.mask & mask), None)
    status = _status(event.path, prefix)
    if kind is None or status is None or not stat.S_ISREG(status.mode) or status.size < WAKING_BYTES:
        return None
    return FileEvent(event.at_ns, kind, status.device, status.inode, status.size, text(event.path))


def _status(path: bytes, prefix: bytes) -> FileStatus | None:
    """Return the status of a file; seen from our own root once the process that led us to it has ended."""
    for start in dict.fromkeys((prefix, b"")):
        with contextlib.suppress(OSError):
            return statx(start + path)
    return None
