"""Opening a database to read it: what is none of ours, or damaged, is told at once."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from sqlite3 import Connection

from ckptprof.errors import StoreError
from ckptprof.store.connection import check_file, open_reader
from ckptprof.store.location import SERVICE_DATABASE, hint_if_refused, service_runs, shown, where_to_get_data
from ckptprof.store.lock import writer_is_alive
from ckptprof.store.migrations import LATEST, check_version
from ckptprof.store.problems import translated
from ckptprof.store.published import copied, number
from ckptprof.store.sql.columns import TABLES

_UPGRADE_SERVICE = "the service still runs the older version: `systemctl restart ckptprof` as root"
_UPGRADE = "record to it once more with this version: that brings it up to date"


def opened(path: Path) -> tuple[Connection, int | None]:
    """Open it, and return the number of the copy, None if it is none.

    Raises StoreError if it is missing, empty, of another program, of another version or damaged.
    """
    _check_file(path)
    with translated(path):
        connection, copy = _open(path)
        try:
            _check_schema(connection, path)
        except BaseException:
            connection.close()
            raise
        return connection, copy


def _check_file(path: Path) -> None:
    try:
        size = check_file(path)
    except FileNotFoundError:
        raise StoreError(f"no database at {shown(path)}", hint=where_to_get_data(path)) from None
    except OSError as error:
        raise StoreError(f"{shown(path)}: {error.strerror}", hint=hint_if_refused(path)) from error
    if size == 0:
        raise StoreError(f"{shown(path)} is empty", hint=where_to_get_data(path))


def _open(path: Path) -> tuple[Connection, int | None]:
    """Open as others do; where the log's index cannot be made (a read-only directory), as a file that nobody writes.

    Of a database that is published only its owner and root open that index, and none makes it: others could open it.
    """
    index, log = (path.with_name(path.name + suffix) for suffix in ("-shm", "-wal"))
    if number(path) is not None and not (index.exists() and os.access(path, os.W_OK, effective_ids=True)):
        return copied(path)
    try:
        return open_reader(path, immutable=False), None
    except sqlite3.OperationalError:
        if writer_is_alive(path) is not False or (log.exists() and log.stat().st_size):
            raise
        return open_reader(path, immutable=True), None


def _check_schema(connection: Connection, path: Path) -> None:
    version = check_version(connection, shown(path))
    if version == 0:
        raise StoreError(f"{shown(path)} is empty", hint=where_to_get_data(path))
    if version < LATEST:
        raise StoreError(
            f"{shown(path)} was written by an older ckptprof (schema {version}, this one reads {LATEST})",
            hint=_UPGRADE_SERVICE if path == SERVICE_DATABASE and service_runs() else _UPGRADE,
        )
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0")
    missing = sorted(set(TABLES) - {name for (name,) in rows})
    if missing:  # a view or a virtual table of that name could run anything for ever
        raise StoreError(
            f"{shown(path)} is damaged: it has no table {missing[0]!r}", hint="give another path with --db"
        )
