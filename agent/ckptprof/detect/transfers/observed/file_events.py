"""Applies events of files (created, synced, closed, renamed) to their transfers."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from functools import lru_cache

from ckptprof.detect.tolerances import (
    COMMIT_NS,
    CONCURRENT_NS,
    MAX_FILES,
    MAX_PER_ITEM,
    POLL_INTERVAL_NS,
    STAMP_TOLERANCE_NS,
)
from ckptprof.detect.transfers.model.phase import Phase
from ckptprof.detect.transfers.model.traced_transfer import TracedTransfer
from ckptprof.detect.world.bounded import Bounded, K
from ckptprof.detect.world.keys import FileKey
from ckptprof.frameworks.file_names import parse_name
from ckptprof_collectors.samples import FileLifeEvent

_REFUSED_SYNCS = (errno.EINTR, errno.EINVAL, errno.EROFS, errno.ESPIPE)  # fsync(2): no evidence about the data
_OPENING_KINDS = ("created", "emptied")
TransferSet = dict[TracedTransfer, None]  # in the order of addition


class WriterPaths:
    """Index of writing transfers by the path of their file, and by each folder above it."""

    def __init__(self) -> None:
        self._path_of: dict[TracedTransfer, str] = {}
        self._files: dict[str, dict[str, tuple[TracedTransfer, ...]]] = {}  # by folder, then by path
        self._folders: dict[str, dict[str, None]] = {}  # folder -> its subfolders
        self._named: dict[str, tuple[TracedTransfer, ...]] = {}  # by the last part of the path

    def add(self, transfer: TracedTransfer) -> None:
        """Add a transfer under its current path."""
        self.remove(transfer)
        path = transfer.path
        if not transfer.writes or not path.startswith("/"):
            return
        self._path_of[transfer] = path
        folder, _, name = path.rpartition("/")
        self._named[name] = (*self._named.get(name, ()), transfer)
        files = self._files.get(folder)
        if files is None:
            files = self._files[folder] = {}
            self._add_folder(folder)
        files[path] = (*files.get(path, ()), transfer)

    def remove(self, transfer: TracedTransfer) -> None:
        """Remove a transfer."""
        path = self._path_of.pop(transfer, None)
        if path is None:
            return
        folder, _, name = path.rpartition("/")
        remove_from(self._named, name, transfer)
        files = self._files[folder]
        remove_from(files, path, transfer)
        if not files:
            del self._files[folder]
            self._remove_folder(folder)

    def by_name(self, name: str) -> list[TracedTransfer]:
        """Return the transfers of files with this name, in any folder."""
        return list(self._named.get(name, ()))

    def in_or_below(self, path: str) -> Iterator[TracedTransfer]:
        """Yield the transfers of a file, or of all files in and below a folder."""
        yield from self._files.get(path.rpartition("/")[0], {}).get(path, ())
        folders = [path]
        while folders:
            folder = folders.pop()
            for transfers in self._files.get(folder, {}).values():
                yield from transfers
            folders.extend(self._folders.get(folder, ()))

    def _add_folder(self, folder: str) -> None:
        """Add a folder to the one above it, and so on, until one is known."""
        for _ in range(MAX_PER_ITEM):
            if not folder:
                return
            parent = folder.rpartition("/")[0]
            known = self._folders.setdefault(parent, {})
            is_first = not known
            known[folder] = None
            if not is_first:
                return
            folder = parent

    def _remove_folder(self, folder: str) -> None:
        """Remove an empty folder, and those above it that are empty then."""
        while folder and folder not in self._files and folder not in self._folders:
            parent = folder.rpartition("/")[0]
            inside = self._folders.get(parent, {})
            inside.pop(folder, None)
            if inside or parent not in self._folders:
                return
            del self._folders[parent]
            folder = parent


class FileEvents:
    """Finds the transfers of an event by file or path; retains events of files that have no transfer yet."""

    def __init__(self) -> None:
        self._waiting: Bounded[FileKey, list[FileLifeEvent]] = Bounded(
            MAX_FILES, list, last_ns=lambda events: events[-1].at_ns
        )
        self.paths = WriterPaths()

    def ingest(
        self, event: FileLifeEvent, writers: Sequence[TracedTransfer], relatives: list[TracedTransfer]
    ) -> list[TracedTransfer]:
        """Apply an event; return the transfers that it changed.

        `writers`: transfers that wrote the event's file, in order; `relatives`: those of its process, for all files.
        """
        if is_sync_of_all(event):
            return [transfer for transfer in relatives if _apply_global_sync(transfer, event)]
        if event.kind == "renamed":
            return list(self._apply_rename(event))
        if (
            event.kind not in (*_OPENING_KINDS, "synced", "closed-written")
            or event.device is None
            or event.inode is None
        ):
            return []
        affected = [transfer for transfer in _concerned_transfers(event, writers) if self._apply(transfer, event)]
        if not affected:
            events = self._waiting.touch((event.device, event.inode))
            events.append(event)
            del events[:-MAX_PER_ITEM]
        return affected

    def adopt(self, transfer: TracedTransfer) -> None:
        """Apply the retained events to a new transfer."""
        self.paths.add(transfer)
        if not transfer.writes:
            return
        for event in self._waiting.pop(transfer.file, ()):
            if (event.pid, event.start_ticks) == transfer.process:
                self._apply(transfer, event)

    def _apply(self, transfer: TracedTransfer, event: FileLifeEvent) -> bool:
        if event.kind in _OPENING_KINDS:
            if transfer.phase is Phase.CLASSIFIED or not 0 <= transfer.first_ns - event.at_ns <= COMMIT_NS:
                return False
            transfer.created_ns = event.at_ns - (event.duration_ns or 0)
            transfer.emptied_ns = event.at_ns if event.kind == "emptied" else None
            if event.path is not None and event.path.startswith("/"):
                self._set_first_path(transfer, event.path)
        elif event.at_ns < transfer.first_ns:
            return False
        elif event.kind == "synced" and event.error is not None:
            if event.error in _REFUSED_SYNCS:
                return False
            transfer.storing_error = event.error
        elif event.kind == "synced":
            own = (event.pid, event.start_ticks) == transfer.process
            _add_sync(transfer, event, is_own=own)
        else:
            transfer.closed_ns = event.at_ns
            transfer.closing_ns = event.at_ns - (event.duration_ns or 0)
            if event.error is not None and event.error not in _REFUSED_SYNCS:
                transfer.storing_error = event.error
        transfer.mark_changed()
        return True

    def _set_first_path(self, transfer: TracedTransfer, path: str) -> None:
        if not transfer.path.startswith("/"):  # a live session's path is known late
            transfer.path = path
            self.paths.add(transfer)
        elif path != transfer.path and transfer.earlier_path is None:
            transfer.earlier_path = path

    def rename(self, transfer: TracedTransfer, path: str) -> None:
        """Set the new path of a transfer's file."""
        if transfer.earlier_path is None:
            transfer.earlier_path = transfer.path
        transfer.path = path
        self.paths.add(transfer)

    def _apply_rename(self, event: FileLifeEvent) -> Iterator[TracedTransfer]:
        old, new = event.path, event.new_path
        if not old or not new:
            return
        if old.startswith("/"):
            new_paths = [(s, new + s.path[len(old) :]) for s in self.paths.in_or_below(old)]
        else:
            new_paths = [
                (s, s.path[: -len(old)] + new if not new.startswith("/") else new)
                for s in self.paths.by_name(old.rpartition("/")[2])
                if s.process == (event.pid, event.start_ticks) and s.path.endswith("/" + old)
            ]
        for transfer, path in new_paths:
            if transfer.phase is Phase.CLASSIFIED or event.at_ns < transfer.first_ns:
                continue
            if not is_temporary(transfer.path) and event.at_ns - transfer.last_sign_ns > POLL_INTERVAL_NS:
                continue  # it is moved away for a new file, as in log rotation
            self.rename(transfer, path)
            transfer.name_given_ns = event.at_ns
            transfer.mark_changed()
            yield transfer

    def __len__(self) -> int:
        """Return the number of files whose events wait for a transfer."""
        return len(self._waiting)

    def shrink(self, share: float) -> None:
        """Retain the events of the latest files only, up to a share of the bound."""
        self._waiting.shrink(share)

    def forget_before(self, at_ns: int) -> None:
        """Drop events before `at_ns`."""
        self._waiting.forget_before(at_ns)


def is_sync_of_all(event: FileLifeEvent) -> bool:
    """Return True for syncs of a whole file system, or of all: syncfs(2), sync(2)."""
    return event.kind == "synced" and event.inode is None


def _apply_global_sync(transfer: TracedTransfer, event: FileLifeEvent) -> bool:
    """Apply a sync of everything to a transfer; return True if it made the transfer's data durable.

    It is part of the save if it starts directly after the last byte, or directly after another sync of the save.
    """
    start_ns = event.at_ns - (event.duration_ns or 0)
    if transfer.phase is Phase.CLASSIFIED or not transfer.writes or start_ns < transfer.first_ns:
        return False
    is_first = transfer.durable_ns is None
    if start_ns <= transfer.last_sign_ns + (CONCURRENT_NS if is_first else STAMP_TOLERANCE_NS):
        _add_sync(transfer, event, is_own=True)
    elif is_first:
        _add_sync(transfer, event, is_own=False)
    else:
        return False
    transfer.mark_changed()
    return True


def _add_sync(transfer: TracedTransfer, event: FileLifeEvent, *, is_own: bool) -> None:
    sync = (event.at_ns - (event.duration_ns or 0), event.at_ns)
    if is_own:
        transfer.syncs = (*transfer.syncs[1 - MAX_PER_ITEM :], sync)
    else:
        transfer.other_syncs = (*transfer.other_syncs[1 - MAX_PER_ITEM :], sync)


def is_temporary(path: str) -> bool:
    """Return True if a file, or a folder above it, has a temporary name."""
    return parse_name(path).temporary or is_in_temporary(path.rpartition("/")[0])


@lru_cache(maxsize=4096)
def is_in_temporary(folder: str) -> bool:
    """Return True if a folder, or one above it, has a temporary name."""
    return any(parse_name(place).temporary for place in _ancestors(folder))


def _ancestors(path: str) -> Iterator[str]:
    for _ in range(MAX_PER_ITEM):
        if not path:
            return
        yield path
        path = path.rpartition("/")[0]


def remove_from(lists: dict[K, tuple[TracedTransfer, ...]], key: K, transfer: TracedTransfer) -> None:
    """Remove a transfer from the list of a key, and the list if that is empty then; the oldest is found at once."""
    place = (found := lists.pop(key)).index(transfer)
    if remaining := found[:place] + found[place + 1 :]:
        lists[key] = remaining


def _concerned_transfers(event: FileLifeEvent, writers: Sequence[TracedTransfer]) -> list[TracedTransfer]:
    """Return the transfer that the event's process was writing then; if there is none, the latest ones of others."""
    own = [transfer for transfer in writers if transfer.process == (event.pid, event.start_ticks)]
    if event.kind in _OPENING_KINDS:
        return [transfer for transfer in own if transfer.first_ns >= event.at_ns][:1]
    if started := [transfer for transfer in own if transfer.first_ns <= event.at_ns]:
        return started[-1:]
    if event.kind != "synced":
        return []
    return list({one.process: one for one in writers if one.first_ns <= event.at_ns}.values())
