"""Containers that cannot grow without end: what was updated, or came, longest ago goes first."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

MAX_THINGS = 512  # of one kind: disks, links, queues, mounts, limits, processes that are watched
MAX_RECENT = 256  # of what is kept as it was: looks at stacks, saves, ends of children

K = TypeVar("K")
V = TypeVar("V")


class Bounded(OrderedDict[K, V]):
    """At most `most` entries, in the order in which they were set or updated last."""

    def __init__(
        self,
        most: int,
        make: Callable[[], V] | None = None,
        *,
        on_drop: Callable[[K, V], None] | None = None,
        last_ns: Callable[[V], int] | None = None,
    ) -> None:
        """Start with nothing.

        `make` makes an empty value: what is asked of a key that is not there is asked of such a one. `on_drop` is told
        what goes for want of room, after it went; `last_ns` tells when an entry was updated.
        """
        super().__init__()
        self._most, self._make, self._on_drop, self._last_ns = most, make, on_drop, last_ns

    def __missing__(self, key: K) -> V:
        """Return an empty value, which is not kept."""
        if self._make is None:
            raise KeyError(key)
        return self._make()

    def __setitem__(self, key: K, value: V) -> None:
        """Set an entry: it is the latest now."""
        super().__setitem__(key, value)
        self.move_to_end(key)
        while len(self) > self._most:
            self.drop_first()

    def update_of(self, key: K) -> V:
        """Return an entry that is about to be updated, an empty one if there was none: it is the latest now."""
        value = self[key]
        if key in self:
            self.move_to_end(key)
        else:
            self[key] = value
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

    def forget_before(self, at_ns: int) -> None:
        """Drop what was updated before a time."""
        while self and self._last_ns is not None and self._last_ns(self[next(iter(self))]) < at_ns:
            self.popitem(last=False)


class Latest(Generic[K, V]):
    """The things that came last, at most `most` of them: in their order, and by what each is of."""

    def __init__(self, most: int, key: Callable[[V], K], last_ns: Callable[[V], int]) -> None:
        """Start with nothing; `key` tells what a thing is of, which never changes, `last_ns` when it was."""
        self._most, self._key, self._last_ns = most, key, last_ns
        self._all: deque[V] = deque()
        self._of: dict[K, deque[V]] = {}

    def add(self, thing: V) -> None:
        """Add the latest."""
        self._all.append(thing)
        self._of.setdefault(self._key(thing), deque()).append(thing)
        self.cut(1.0)

    def of(self, key: K) -> Sequence[V]:
        """Return what is of one key, the oldest first."""
        return self._of.get(key, ())

    def __iter__(self) -> Iterator[V]:
        """Yield all of them, the oldest first."""
        return iter(self._all)

    def __len__(self) -> int:
        """Return how many are kept."""
        return len(self._all)

    def cut(self, share: float) -> None:
        """Keep so many of the latest, as a share of the bound."""
        while len(self._all) > share * self._most:
            self._drop_first()

    def forget_before(self, at_ns: int) -> None:
        """Drop what was before a time."""
        while self._all and self._last_ns(self._all[0]) < at_ns:
            self._drop_first()

    def _drop_first(self) -> None:
        key = self._key(self._all.popleft())
        own = self._of[key]
        own.popleft()
        if not own:
            del self._of[key]
