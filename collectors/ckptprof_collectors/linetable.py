"""A kernel file with one line per entity, read repeatedly: which lines changed, which entities are new or gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

NO_NAMES: frozenset[bytes] = frozenset()
T = TypeVar("T")
_INVALID_NAMES = frozenset(
    (b"", b".", b"..")
)  # sysfs has a folder for each entity, so none has such a name, or a slash


class LineTable:
    """The lines of the last read. They are compared as bytes and by position, so unchanged ones are never parsed."""

    def __init__(self, name_of: Callable[[bytes], bytes | None]) -> None:
        """`name_of` returns the entity of a line, None if it has none; names that cannot be file names are ignored."""
        self._line_name = name_of
        self._data = b""
        self._lines: list[bytes] = [b""]
        self._names: list[bytes | None] = [None]
        self.lines_by_name: dict[bytes, bytes] = {}  # as of the last change of the set of entities
        self.arrived: frozenset[bytes] = NO_NAMES  # with the last update
        self.departed: frozenset[bytes] = NO_NAMES

    def update(self, data: bytes) -> list[bytes]:
        """Compare with the current contents; return the lines that are new or changed."""
        if self.arrived or self.departed:
            self.arrived = self.departed = NO_NAMES
        if data == self._data:
            return []
        self._data = data
        lines, before = data.split(b"\n"), self._lines
        self._lines = lines
        if len(lines) != len(before):
            return self._relist(lines, before)
        changed = []
        names = self._names
        for at, line in enumerate(lines):
            if line != before[at]:
                if self._name_of(line) != names[at]:
                    return self._relist(lines, before)
                changed.append(line)
        return changed

    def _name_of(self, line: bytes) -> bytes | None:
        name = self._line_name(line)
        return None if name is None or b"\0" in name or b"/" in name or name in _INVALID_NAMES else name

    def samples(self, data: bytes, parse: Callable[[bytes], T | None]) -> list[T]:
        """Compare with the current contents; return the samples of new or changed lines, malformed ones left out."""
        return [sample for line in self.update(data) if (sample := parse(line)) is not None]

    def _relist(self, lines: list[bytes], before: list[bytes]) -> list[bytes]:
        previous_lines = {name: line for name, line in zip(self._names, before, strict=True) if name is not None}
        self._names = [self._name_of(line) for line in lines]
        named = {name: line for name, line in zip(self._names, lines, strict=True) if name is not None}
        self.lines_by_name = named
        self.arrived = frozenset(named.keys() - previous_lines.keys())
        self.departed = frozenset(previous_lines.keys() - named.keys())
        return [line for name, line in named.items() if previous_lines.get(name) != line]
