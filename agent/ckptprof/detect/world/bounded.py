"""A mapping that cannot grow without end: what was updated longest ago goes first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

MAX_THINGS = 512  # of one kind: disks, links, queues, mounts, limits, processes that are watched
MAX_RECENT = 256  # of what is kept as it was: looks at stacks, saves, ends of children

K = TypeVar("K")
V = TypeVar("V")


class Bounded(OrderedDict[K, V]):
    """At most `most` entries, in the order in which they were set or updated last."""

    def __init__(self, most: int, on_drop: Callable[[K, V], None] | None = None) -> None:
        """Start with nothing; `on_drop` is told what goes for want of room, after it went."""
        super().__init__()
        self._most, self._on_drop = most, on_drop

    def __setitem__(self, key: K, value: V) -> None:
        """Set an entry: it is the latest now."""
        super().__setitem__(key, value)
        self.move_to_end(key)
        while len(self) > self._most:
            self.drop_first()

    def update_of(self, key: K, make: Callable[[], V]) -> V:
        """Return an entry that is about to be updated, a new one if there was none: it is the latest now."""
        value = self.get(key)
        if value is None:
            value = self[key] = make()
        else:
            self.move_to_end(key)
        return value

    def drop_first(self) -> None:
        """Drop what was updated longest ago."""
        key, value = self.popitem(last=False)
        if self._on_drop is not None:
            self._on_drop(key, value)

    def cut(self, share: float) -> None:
        """Keep the latest entries, as many as a share of the bound."""
        while len(self) > share * self._most:
            self.drop_first()

    def forget_before(self, at_ns: int, last_ns: Callable[[V], int]) -> None:
        """Drop what was updated before a time; `last_ns` tells when an entry was."""
        while self and last_ns(self[next(iter(self))]) < at_ns:
            self.popitem(last=False)
