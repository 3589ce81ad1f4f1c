"""Folders as the file system numbers them: what tells one from all others, whatever it is called where."""

from __future__ import annotations

from collections.abc import Iterable

from ckptprof.detect.world.bounded import MAX_THINGS, Bounded
from ckptprof.detect.world.keys import FileKey, ProcessKey
from ckptprof_collectors.samples import FileFact


class Folders:
    """The folders that were told of, by the process for whose sake they were looked at and what it calls them."""

    def __init__(self) -> None:
        self._known: Bounded[tuple[ProcessKey, str], FileKey] = Bounded(MAX_THINGS)

    def note(self, fact: FileFact) -> None:
        """Take what is said of a folder, and so of the one that it is in."""
        asker = fact.pid, fact.start_ticks
        self._known[asker, fact.path] = fact.device, fact.inode
        if fact.folder_inode is not None:
            self._known[asker, folder_of(fact.path)] = fact.device, fact.folder_inode

    def key(self, path: str, processes: Iterable[ProcessKey]) -> FileKey | None:
        """Return the device and inode of a folder that one of these processes uses; None: nobody looked at it."""
        keys = (self._known.get((process, path)) for process in processes)
        return next((key for key in keys if key is not None), None)


def folder_of(path: str) -> str:
    """Return the path of the folder that something is in."""
    return path.rpartition("/")[0] or "/"
