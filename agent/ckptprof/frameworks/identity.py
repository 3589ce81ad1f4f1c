"""Whose checkpoint it is, from the names of all its files: the most particular name decides, not the biggest file."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ckptprof.frameworks.formats import file_format
from ckptprof.frameworks.names import read_name
from ckptprof.frameworks.table import BY_NAME, FRAMEWORKS

UNKNOWN_WEIGHT = 0.6


def framework_of(files: Iterable[tuple[str, int, bytes | None]], programs: Collection[str] = ()) -> str | None:
    """Return the framework that a checkpoint's files are named by.

    `files` are (path, bytes moved, first bytes or None), `programs` the names of the programs that moved them. Of the
    frameworks that the names fit, what trains goes before what it saves with, and that before a mere format; of equals,
    the one with most bytes wins. A name that the file's first bytes belie does not count. None: no name fits.
    """
    moved: dict[str, int] = {}
    for path, size, magic in files:
        entry = read_name(path).framework
        if entry is None or (magic and entry.formats and file_format(magic, path) not in entry.formats):
            continue
        moved[entry.name] = moved.get(entry.name, 0) + size + 1
    if not moved:
        return None
    found = max(moved, key=lambda name: (BY_NAME[name].layer, moved[name]))
    for framework in FRAMEWORKS:
        expression = framework.programs
        if expression is not None and found in framework.extends and any(map(expression.match, programs)):
            return framework.name
    return found


def weight_of(name: str) -> float:
    """Return how much it is worth as evidence that files are named as this framework names them, 0.15 to 0.6."""
    entry = BY_NAME.get(name)
    return entry.weight if entry is not None else UNKNOWN_WEIGHT
