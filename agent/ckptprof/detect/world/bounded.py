"""Containers of bounded size: the entry that was updated or added longest ago is dropped first."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

MAX_ENTRIES = 512  # of one kind: disks, links, queues, mounts, limits, observed processes
MAX_RECENT = 256  # unaggregated entries: stack samples, saves, exits of children

K = TypeVar("K")
V = TypeVar("V")


class Bounded(OrderedDict[K, V]):
    """At most `limit` entries, in the order of their last update."""

    def __init__(
        self,
        limit: int,
        make: Callable[[], V] | None = None,
        *,
        on_drop: Callable[[K, V], None] | None = None,
        last_ns: Callable[[V], int] | None = None,
    ) -> None:
        """`make` creates the value that a missing key yields.

        `on_drop` is called after an entry was dropped for lack of space; `last_ns` returns when an entry was last
        updated.
        """
        super().__init__()
        self._limit, self._make, self._on_drop, self._last_ns = limit, make, on_drop, last_ns

    def __missing__(self, key: K) -> V:
        if self._make is None:
            raise KeyError(key)
        return self._make()

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        while len(self) > self._limit:
            self.drop_oldest()

    def touch(self, key: K) -> V:
        """Return an entry for an update, newly made if missing, and make it the latest."""
        value = self[key]
        if key in self:
            self.move_to_end(key)
        else:
            self[key] = value
        return value

    def drop_oldest(self) -> None:
        """Drop the entry updated longest ago."""
        key, value = self.popitem(last=False)
        if self._on_drop is not None:
            self._on_drop(key, value)

    def shrink(self, share: float) -> None:
        """Drop the oldest entries down to this share of the limit."""
        while len(self) > share * self._limit:
            self.drop_oldest()

    def forget_before(self, at_ns: int) -> None:
        """Drop entries updated before a time."""
        while self and self._last_ns is not None and self._last_ns(self[next(iter(self))]) < at_ns:
            self.popitem(last=False)


class Latest(Generic[K, V]):
    """The newest items, at most `limit`: in order, and by key."""

    def __init__(self, limit: int, key: Callable[[V], K], last_ns: Callable[[V], int]) -> None:
        """`key` returns the key of an item, which must never change, `last_ns` its time."""
        self._limit, self._key, self._last_ns = limit, key, last_ns
        self._all: deque[V] = deque()
        self._by_key: dict[K, deque[V]] = {}

    def add(self, item: V) -> None:
        """Add the newest item."""
        self._all.append(item)
        self._by_key.setdefault(self._key(item), deque()).append(item)
        self.shrink(1.0)

    def by_key(self, key: K) -> Sequence[V]:
        """Items of one key, oldest first."""
        return self._by_key.get(key, ())

    def __iter__(self) -> Iterator[V]:
        return iter(self._all)

    def __reversed__(self) -> Iterator[V]:
        return reversed(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def shrink(self, share: float) -> None:
        """Drop the oldest items down to this share of the limit."""
        while len(self._all) > share * self._limit:
            self._drop_oldest()

    def forget_before(self, at_ns: int) -> None:
        """Drop items older than a time."""
        while self._all and self._last_ns(self._all[0]) < at_ns:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        key = self._key(self._all.popleft())
        own = self._by_key[key]
        own.popleft()
        if not own:
            del self._by_key[key]
