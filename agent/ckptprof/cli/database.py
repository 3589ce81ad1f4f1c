"""Opening the database for a command that reads it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ckptprof.store.reader import StoreReader


@contextmanager
def reading(db: str | None) -> Iterator[StoreReader]:
    """Open the database of `--db`, or that of `path_to_read`, and close it in the end; raises StoreError."""
    from ckptprof.store.location import path_to_read  # noqa: PLC0415 # `--help` of a command needs no database
    from ckptprof.store.reader import StoreReader  # noqa: PLC0415 # imports SQLAlchemy: 0.6 s that only a query pays

    reader = StoreReader(path_to_read() if db is None else db)
    try:
        yield reader
    finally:
        reader.close()
