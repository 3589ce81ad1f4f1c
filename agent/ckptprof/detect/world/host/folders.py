"""Folders by their device and inode: identical under all names and mounts."""

from __future__ import annotations

from collections.abc import Iterable

from ckptprof.detect.world.bounded import MAX_THINGS, Bounded
from ckptprof.detect.world.keys import FileKey, ProcessKey
from ckptprof_collectors.samples import FileFact


class Folders:
    """Known folders, by the process for which they were inspected and the path that it uses."""

    def __init__(self) -> None:
        self._known: Bounded[tuple[ProcessKey, str], FileKey] = Bounded(MAX_THINGS)

    def note(self, fact: FileFact) -> None:
        """Record the folder in a fact, and its parent."""
        asker = fact.pid, fact.start_ticks
        self._known[asker, fact.path] = fact.device, fact.inode
        if fact.folder_inode is not None:
            self._known[asker, folder_of(fact.path)] = fact.device, fact.folder_inode

    def key(self, path: str, processes: Iterable[ProcessKey]) -> FileKey | None:
        """Device and inode of a folder that one of these processes uses; None: not inspected."""
        keys = (self._known.get((process, path)) for process in processes)
        return next((key for key in keys if key is not None), None)


def folder_of(path: str) -> str:
    """Path of the folder that contains a path."""
    return path.rpartition("/")[0] or "/"
