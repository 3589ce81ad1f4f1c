"""Opening the database for a command that reads it."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
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
def opened(db: str | None) -> Iterator[StoreReader]:
    """Open the database of `--db`, or that of `path_to_read`, and close it in the end; raises StoreError."""
    from ckptprof.store.location import path_to_read  # noqa: PLC0415 # `--help` of a command needs no database
    from ckptprof.store.reader import StoreReader  # noqa: PLC0415 # SQLAlchemy: 0.1 s that only a query pays

    with StoreReader(path_to_read() if db is None else db) as reader:
        yield reader


@contextmanager
def reading(db: str | None, *, prints: bool = False) -> Iterator[StoreReader]:
    """Open it for one answer, and say so if that takes long; raises StoreError. `prints`: the block does, by itself.

    Until then nothing looks for cycles of objects: what is imported and read has next to none, and looking through it
    again and again takes up to a third of the time of a report.
    """
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        from ckptprof.service.progress import waiting  # noqa: PLC0415 # as below

        with opened(db) as reader, nullcontext() if prints else waiting(f"reading {reader.path} ..."):
            yield reader
    finally:
        if was_collecting:
            gc.freeze()  # what was imported and read, for all that is still to come
            gc.enable()
