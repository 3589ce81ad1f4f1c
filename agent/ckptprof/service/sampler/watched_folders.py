"""Folders of checkpoints: a file opened there wakes the sampler, so that even a short restore is observed.

The loop resolves no path. A worker thread finds the folder, in the root of the process that uses it, and the files
opened in it; its answer wakes the loop. A mount that may hang has a worker thread of its own, which may hang with it.
"""

from __future__ import annotations

import contextlib
import os
import select
import stat
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from ckptprof_collectors.files.folder_events import (
    IN_CLOSE_NOWRITE,
    IN_CLOSE_WRITE,
    IN_CREATE,
    IN_DELETE,
    IN_ISDIR,
    IN_MOVED_TO,
    IN_OPEN,
    FolderEvent,
    FolderEvents,
)
from ckptprof_collectors.files.process_roots import OtherDomain, PathStep, ProcessKey, ProcessRoot
from ckptprof_collectors.files.statx import AT_SYMLINK_NOFOLLOW, statx
from ckptprof_collectors.files.workers import URGENT, WORKERS, Job, WorkerPool
from ckptprof_collectors.mounts.failure_domains import LOCAL
from ckptprof_collectors.samples import FileEvent, text

WAKING_BYTES = 1 << 20  # an opened file of this size may be a restore
_KINDS = (
    (IN_CLOSE_WRITE, "closed-written"),
    (IN_CLOSE_NOWRITE, "closed-read"),
    (IN_OPEN, "opened"),
    (IN_MOVED_TO, "renamed"),
)
MAX_DEPTH = 2  # levels of folders below a named one that are watched with it
MAX_BELOW = 64
MAX_LISTED = 1024
MAX_MOVES = 3  # from the worker thread of one domain to that of another
MAX_PLACES = 1024
_VIEW_MEMORY_NS = 60_000_000_000
_RETRY_NS = 5_000_000_000  # for a place that could not be watched

_Places = Iterator[tuple[bytes, PathStep]]
_Find = Callable[[ProcessRoot, str], _Places]


class _WatchedFolder(NamedTuple):
    """A watched folder: in whose root, and its identity then; another may have replaced it since."""

    view: ProcessKey
    domain: str
    key: tuple[int, int]


class WatchedFolders:
    """Watches folders and reports opened files; does nothing where there is no inotify."""

    def __init__(self, workers: WorkerPool = WORKERS) -> None:
        """Open inotify if possible; otherwise `reason` says why not."""
        self.reason: str | None = None
        self._workers = workers
        self._events: FolderEvents | None = None
        self._watched: dict[bytes, _WatchedFolder] = {}
        self._added: deque[tuple[bytes, _WatchedFolder, int]] = deque()  # by worker threads: the kernel's answers
        self._reported: deque[tuple[FileEvent, bytes | None]] = deque()  # by worker threads; with the path that wakes
        self._closed: set[bytes] = set()  # files closed after reading, and not opened since
        self._large: set[tuple[int, int]] = set()  # device and inode of reported files
        self._retry_at_ns: dict[tuple[bytes, ProcessKey, bool], int] = {}  # place -> when it may be searched again
        self._wake_fd = -1
        self._ready = select.poll()
        self.is_woken = False
        self.opened: bool | None = None  # a file that is still open: whether it existed, so that it may be mapped
        try:
            self._events = FolderEvents()
            self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        except OSError as error:
            self.reason = f"inotify: {error.strerror}"
        for fd in self.filenos():
            self._ready.register(fd, select.POLLIN)

    def filenos(self) -> tuple[int, ...]:
        """Return the descriptors to poll, none without inotify."""
        return () if self._events is None else tuple(fd for fd in (self._events.fd, self._wake_fd) if fd >= 0)

    def watch(self, folder: bytes, view: ProcessKey, *, unless_shared: bool = False) -> None:
        """Watch a folder of a process; one that cannot be watched, or that every user may write to, is left out."""
        if self._events is not None and not self._events.is_watched(folder):
            self._queue_search(
                folder, view, partial(_find_exact, folder, unless_shared=unless_shared), shared=not unless_shared
            )

    def watch_checkpoint(self, path: bytes, view: ProcessKey) -> None:
        """Watch the folders where the checkpoint after this file's may appear."""
        folder, above = folders_of(path)
        self.watch(folder, view)
        if above is not None:
            self.watch(above, view, unless_shared=True)

    def watch_place(self, place: bytes, view: ProcessKey) -> None:
        """Watch a folder where a process may save, or the nearest existing one above it."""
        self._queue_search(place, view, partial(_find_nearest, place))

    def watch_tree(self, folders: Iterable[bytes], view: ProcessKey) -> None:
        """Watch folders with those below them, which a restart may restore from. A file means its folder."""
        for folder in folders:
            self._queue_search(folder, view, partial(_find_tree, folder))

    def _queue_search(self, place: bytes, view: ProcessKey, find: _Find, *, shared: bool = True) -> None:
        if self._events is None or not place.startswith(b"/"):
            return
        now_ns, search = time.monotonic_ns(), (place, view, shared)
        if now_ns < self._retry_at_ns.get(search, 0):
            return
        if len(self._retry_at_ns) >= MAX_PLACES:
            self._retry_at_ns.clear()
        self._retry_at_ns[search] = now_ns + _RETRY_NS
        events = self._events

        def done() -> None:
            self._retry_at_ns.pop(search, None)

        self._workers.put(URGENT, self._add_job(events, view, find, done))

    def _add_job(  # noqa: PLR0913 - the folder to watch, and the progress of the search
        self, events: FolderEvents, view: ProcessKey, find: _Find, done: Callable[[], None],
        *, domain: str = LOCAL, moves: int = 0,
    ) -> Job:  # fmt: skip
        def add() -> bool:
            try:
                with self._workers.views.enter(view) as root:
                    for path, found in find(root, domain):
                        try:
                            if path != b"/" and found.is_folder:
                                key = (found.status.device, found.status.inode)
                                watched = _WatchedFolder(view, found.mounted.domain, key)
                                self._added.append((path, watched, events.add(found.fd)))
                                done()
                        finally:
                            found.close()
            except OtherDomain as apart:
                if moves < MAX_MOVES:
                    again = self._add_job(events, view, find, done, domain=apart.domain, moves=moves + 1)
                    self._workers.put(apart.domain, again)
            except (OSError, ValueError):  # missing, not permitted, or its process has ended
                return False
            return False

        return add

    def _register_added(self, events: FolderEvents) -> None:
        while self._added:
            folder, watched, descriptor = self._added.popleft()
            if events.record_added(folder, descriptor):
                self._watched.pop(folder, None)
                self._watched[folder] = watched
                if len(self._watched) > 4096:
                    self._watched.pop(next(iter(self._watched)))

    @property
    def lost_events(self) -> int:
        """Events that were too many to report."""
        return 0 if self._events is None else self._events.lost

    def ignore_own_open(self, path: bytes) -> None:
        """Record that the sampler itself is about to open this file."""
        if self._events is not None:
            self._events.expect_own(path)

    def consume(self) -> list[FileEvent]:
        """Return new events; sets `is_woken` if a file that may be a checkpoint was opened or created."""
        if self._events is None:
            return []
        self._register_added(self._events)
        if not self._ready.poll(0) and not self._reported and not self._events.has_early_events:
            return []
        with contextlib.suppress(OSError):  # it is empty
            os.eventfd_read(self._wake_fd)
        happened: dict[_WatchedFolder, list[FolderEvent]] = {}
        deleted: list[FileEvent] = []
        for event in self._events.read():
            watched = self._watched.get(os.path.dirname(event.path))
            if watched is None:
                continue
            if event.mask & IN_DELETE:
                deleted.append(FileEvent(event.at_ns, "deleted", 0, 0, 0, text(event.path)))
            elif event.mask & IN_ISDIR:
                self._watch_new(event, watched.view)
            elif event.mask & IN_CREATE:
                self._wake(existed=False)
            else:
                self._closed.discard(event.path)
                if event.mask & IN_CLOSE_NOWRITE:
                    self._closed.add(event.path)
                happened.setdefault(watched, []).append(event)
        for watched, events in happened.items():
            self._inspect(watched, events)
        return [*deleted, *self._consume_reported()]

    def _consume_reported(self) -> Iterator[FileEvent]:
        for _ in range(len(self._reported)):
            event, path = self._reported.popleft()
            if path in self._closed:  # bytes may have been read: the tick tells
                self.is_woken = True
            elif path is not None:
                self._wake(existed=event.size >= WAKING_BYTES)
            yield event
        if len(self._closed) > MAX_PLACES:
            self._closed.clear()

    def _wake(self, *, existed: bool) -> None:
        self.is_woken, self.opened = True, self.opened or existed

    def _watch_new(self, event: FolderEvent, view: ProcessKey) -> None:
        if event.mask & (IN_CREATE | IN_MOVED_TO):
            self._retry_at_ns.pop((event.path, view, True), None)  # it may replace another one
            self.watch(event.path, view)

    def _inspect(self, watched: _WatchedFolder, events: list[FolderEvent]) -> None:
        local = watched.domain == LOCAL
        put = self._workers.put(
            URGENT if local else watched.domain, lambda: self._report_events(watched, events, wake=local)
        )
        if (not local or not put) and any(event.mask & IN_OPEN for event in events):
            self._wake(existed=True)  # its size is known too late for a short restore

    def _report_events(self, watched: _WatchedFolder, events: list[FolderEvent], *, wake: bool) -> bool:
        """Report opens and closes of files that are or were large: an open may truncate one to rewrite it."""
        try:
            with self._workers.views.enter(watched.view, max_age_ns=_VIEW_MEMORY_NS) as root:
                folder = root.find(os.path.dirname(events[0].path), watched.domain)
                try:
                    if (folder.status.device, folder.status.inode) == watched.key:
                        found = [
                            (file_event, event.path if wake and file_event.kind == "opened" else None)
                            for event in events
                            if (file_event := self._file_event(event, folder)) is not None
                        ]
                        self._reported.extend(found)
                        if wake and found:
                            os.eventfd_write(self._wake_fd, 1)
                finally:
                    folder.close()
        except (OSError, OtherDomain):  # another folder has replaced it
            return False
        return False

    def _file_event(self, event: FolderEvent, folder: PathStep) -> FileEvent | None:
        kind = next((name for mask, name in _KINDS if event.mask & mask), None)
        try:
            status = statx(os.path.basename(event.path), dir_fd=folder.fd, flags=AT_SYMLINK_NOFOLLOW)
        except OSError:
            return None
        key = (status.device, status.inode)
        if kind is None or not stat.S_ISREG(status.mode) or (status.size < WAKING_BYTES and key not in self._large):
            return None
        if len(self._large) >= MAX_PLACES:
            self._large.clear()
        self._large.add(key)
        return FileEvent(event.at_ns, kind, *key, status.size, text(event.path))

    def close(self) -> None:
        """Close inotify; the eventfd by which worker threads wake the loop stays open: one of them may hang."""
        if self._events is not None:
            self._events.close()
            self._events = None


def folders_of(path: bytes) -> tuple[bytes, bytes | None]:
    """Return a file's folder, and the folder above it if the folder has a number (one folder per checkpoint)."""
    folder = os.path.dirname(path)
    numbered = any(byte in b"0123456789" for byte in os.path.basename(folder))
    return folder, os.path.dirname(folder) if numbered else None


def _find_exact(folder: bytes, root: ProcessRoot, domain: str, *, unless_shared: bool) -> _Places:
    found = root.find(folder, domain)
    if unless_shared and _is_shared(found):
        found.close()
    else:
        yield folder, found


def _is_shared(found: PathStep) -> bool:
    return bool(found.status.mode & stat.S_ISVTX)


def _find_nearest(place: bytes, root: ProcessRoot, domain: str) -> _Places:
    for _ in range(MAX_DEPTH + 1):
        try:
            found = root.find(place, domain)
        except (FileNotFoundError, NotADirectoryError):
            place = os.path.dirname(place)
            continue
        if found.is_folder and not _is_shared(found):
            yield place, found
            return
        is_folder = found.is_folder
        found.close()
        if is_folder:
            return
        place = os.path.dirname(place)


def _find_tree(folder: bytes, root: ProcessRoot, domain: str) -> _Places:
    found = root.find(folder, domain)
    if not found.is_folder:
        found.close()
        above = os.path.dirname(folder)
        yield above, root.find(above, domain)
        return
    below = list(_find_below(found, folder, root, domain, MAX_DEPTH))
    yield folder, found
    yield from below


def _find_below(folder: PathStep, path: bytes, root: ProcessRoot, domain: str, depth: int) -> _Places:
    for name in _folders_in(folder)[-MAX_BELOW:]:
        try:
            found = root.step(folder, name, domain)
        except (OSError, OtherDomain):
            continue
        inside = path.rstrip(b"/") + b"/" + name
        if depth > 1:
            yield from _find_below(found, inside, root, domain, depth - 1)
        yield inside, found


def _folders_in(folder: PathStep) -> list[bytes]:
    try:
        fd = folder.reopen(os.O_RDONLY | os.O_DIRECTORY)
        try:
            with os.scandir(fd) as entries:
                listed = (entry for _, entry in zip(range(MAX_LISTED), entries, strict=False))
                return [os.fsencode(entry.name) for entry in listed if entry.is_dir(follow_symlinks=False)]
        finally:
            os.close(fd)
    except OSError:
        return []
