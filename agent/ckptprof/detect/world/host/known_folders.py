"""Folders by their device and inode: identical under all names and mounts."""

from __future__ import annotations

from collections.abc import Iterable

from ckptprof.detect.world.bounded import MAX_ENTRIES, Bounded
from ckptprof.detect.world.keys import FileKey, ProcessKey
from ckptprof_collectors.samples import FileFact


class KnownFolders:
    """Known folders, by the process for which they were inspected and the path that it uses."""

    def __init__(self) -> None:
        self._keys: Bounded[tuple[ProcessKey, str], FileKey] = Bounded(MAX_ENTRIES)

    def record(self, fact: FileFact) -> None:
        """Record the folder in a fact, and its parent."""
        process = fact.pid, fact.start_ticks
        self._keys[process, fact.path] = fact.device, fact.inode
        if fact.folder_inode is not None:
            self._keys[process, parent_folder(fact.path)] = fact.device, fact.folder_inode

    def key(self, path: str, processes: Iterable[ProcessKey]) -> FileKey | None:
        """Device and inode of a folder that one of these processes uses; None: not inspected."""
        keys = (self._keys.get((process, path)) for process in processes)
        return next((key for key in keys if key is not None), None)


def parent_folder(path: str) -> str:
    """Path of the folder that contains a path."""
    return path.rpartition("/")[0] or "/"
