"""What a shipper asks of where it ships to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from ckptprof.model import Session
from ckptprof.store.fleet.outbox import Batch, Taken


class Taker(Protocol):
    """Takes what one database of a node has; every method raises StoreError."""

    def taken(self, told: Sequence[Session], newest: int) -> Taken:
        """Return how far the database was taken, which has these sessions, and this as its last change."""
        ...

    def put(self, batch: Batch) -> Taken:
        """Take a batch; return how far the database is taken then."""
        ...


Way = Callable[[str, str], AbstractContextManager[Taker]]  # of a node, and the uid of the first session of its database
