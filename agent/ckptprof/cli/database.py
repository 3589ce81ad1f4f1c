"""Opening the database for a command that reads it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ckptprof.store.reader import StoreReader


def elsewhere(db: str | None) -> str | None:
    """Return where to ask if a database of one's own, which was asked unnamed, holds nothing; None: nowhere."""
    from ckptprof.store.location import SERVICE_DATABASE, path_to_read  # noqa: PLC0415 # as below

    if db is not None or path_to_read() == SERVICE_DATABASE or not os.access(SERVICE_DATABASE, os.R_OK):
        return None
    return f"this is your own record: the service records to {SERVICE_DATABASE}, ask that with --db"


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
