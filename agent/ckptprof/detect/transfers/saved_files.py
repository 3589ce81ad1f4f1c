"""Which files were recognised as saved, and what the last save of each told of it."""

from __future__ import annotations

from typing import NamedTuple

from ckptprof.detect.transfers.model.tolerances import MAX_FILES
from ckptprof.detect.world.bounded import Bounded


class Saved(NamedTuple):
    """What is known of a saved file, or of the folder of a save."""

    framework: str | None = None
    step: int | None = None


class SavedFiles:
    """Bounded: what was saved longest ago is forgotten first."""

    def __init__(self, paths: tuple[str, ...] = ()) -> None:
        """Start with the paths that the store knows."""
        self._saved: Bounded[str, Saved] = Bounded(MAX_FILES)
        self._saved.update(dict.fromkeys(paths[:MAX_FILES], Saved()))

    def add(self, path: str, framework: str | None = None, step: int | None = None) -> None:
        """Add a saved file, by whom it was made and what step it holds, as far as the save told."""
        self._saved[path] = Saved(framework, step)

    def last_save(self, path: str) -> Saved | None:
        """Return what the last save of a file told of it; None if it was not seen."""
        return self._saved.get(path)

    def contains(self, path: str) -> bool:
        """Return whether the file, or the folder that it is in, was saved."""
        return path in self._saved or path.rpartition("/")[0] in self._saved

    def in_folder(self, folder: str) -> list[str]:
        """Return the saved files of a folder."""
        return [path for path in self._saved if path.rpartition("/")[0] == folder]
