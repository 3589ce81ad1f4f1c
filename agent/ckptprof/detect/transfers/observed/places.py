"""Where the files of traced transfers are: by path, and by each folder above, at the cost of one entry a file."""

from __future__ import annotations

from collections.abc import Iterator

from ckptprof.detect.tolerances import MAX_EACH
from ckptprof.detect.transfers.model.traced import TracedTransfer


class Places:
    """The transfers that write, by where their files were when they were placed; folders are entered once for all."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._path_of: dict[int, str] = {}  # by identity
        self._files: dict[str, dict[str, tuple[TracedTransfer, ...]]] = {}  # by folder, then by path
        self._folders: dict[str, dict[str, None]] = {}  # the folders that are in each
        self._named: dict[str, dict[int, TracedTransfer]] = {}  # by the last part of the path, and identity

    def place(self, transfer: TracedTransfer) -> None:
        """Take note of where a transfer's file is."""
        self.forget(transfer)
        path = transfer.path
        if not transfer.writes or not path.startswith("/"):
            return
        self._path_of[id(transfer)] = path
        folder, _, name = path.rpartition("/")
        self._named.setdefault(name, {})[id(transfer)] = transfer
        files = self._files.get(folder)
        if files is None:
            files = self._files[folder] = {}
            self._enter(folder)
        files[path] = (*files.get(path, ()), transfer)

    def forget(self, transfer: TracedTransfer) -> None:
        """Drop what is known of where a transfer's file is."""
        path = self._path_of.pop(id(transfer), None)
        if path is None:
            return
        folder, _, name = path.rpartition("/")
        named = self._named[name]
        del named[id(transfer)]
        if not named:
            del self._named[name]
        files = self._files[folder]
        left = tuple(one for one in files[path] if one is not transfer)
        if left:
            files[path] = left
            return
        del files[path]
        if not files:
            del self._files[folder]
            self._leave(folder)

    def named(self, name: str) -> list[TracedTransfer]:
        """Return the transfers of files of a name, wherever they are."""
        return list(self._named.get(name, {}).values())

    def below(self, path: str) -> Iterator[TracedTransfer]:
        """Yield the transfers of a file, or of what is in a folder and in those below it."""
        yield from self._files.get(path.rpartition("/")[0], {}).get(path, ())
        folders = [path]
        while folders:
            folder = folders.pop()
            for transfers in self._files.get(folder, {}).values():
                yield from transfers
            folders.extend(self._folders.get(folder, ()))

    def _enter(self, folder: str) -> None:
        """Enter a folder in the one above it, and that one likewise, until one is known."""
        for _ in range(MAX_EACH):
            if not folder:
                return
            above = folder.rpartition("/")[0]
            known = self._folders.setdefault(above, {})
            is_first = not known
            known[folder] = None
            if not is_first:
                return
            folder = above

    def _leave(self, folder: str) -> None:
        """Drop a folder in which nothing is left, and those above it that were kept for it."""
        while folder and folder not in self._files and folder not in self._folders:
            above = folder.rpartition("/")[0]
            inside = self._folders.get(above, {})
            inside.pop(folder, None)
            if inside or above not in self._folders:
                return
            del self._folders[above]
            folder = above
