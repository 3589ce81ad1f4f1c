"""Opening a database to read it: what is none of ours, or damaged, is told at once."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from sqlite3 import Connection

from ckptprof.errors import StoreError
from ckptprof.store.connection import check_file, open_reader
from ckptprof.store.location import SERVICE_DATABASE, hint_if_refused, service_runs, shown, where_to_get_data
from ckptprof.store.lock import writer_is_alive
from ckptprof.store.migrations import LATEST, check_version
from ckptprof.store.problems import translated
from ckptprof.store.sql.columns import TABLES


def opened(path: Path) -> Connection:
    """Open it; raises StoreError if it is missing, empty, of another program, of another version or damaged."""
    _check_file(path)
    with translated(path):
        connection = _open(path)
        try:
            _check_schema(connection, path)
        except BaseException:
            connection.close()
            raise
        return connection


def _check_file(path: Path) -> None:
    try:
        size = check_file(path)
    except FileNotFoundError:
        raise StoreError(f"no database at {shown(path)}", hint=where_to_get_data(path)) from None
    except OSError as error:
        raise StoreError(f"{shown(path)}: {error.strerror}", hint=hint_if_refused(path)) from error
    if size == 0:
        raise StoreError(f"{shown(path)} is empty", hint=where_to_get_data(path))


def _open(path: Path) -> Connection:
    """Open as others do; where the log's index cannot be made (a read-only directory), as a file that nobody writes."""
    with translated(path):
        try:
            return open_reader(path, immutable=False)
        except sqlite3.OperationalError:
            log = path.with_name(path.name + "-wal")
            if writer_is_alive(path) or (log.exists() and log.stat().st_size):
                raise
            return open_reader(path, immutable=True)


def _check_schema(connection: Connection, path: Path) -> None:
    version = check_version(connection, shown(path))
    if version == 0:
        raise StoreError(f"{shown(path)} is empty", hint=where_to_get_data(path))
    if version < LATEST:
        raise StoreError(
            f"{shown(path)} was written by an older ckptprof (schema {version}, this one reads {LATEST})",
            hint="the service still runs the old version: as root `systemctl restart ckptprof`"
            if service_runs() and path == SERVICE_DATABASE
            else "start the agent once: it upgrades the database",
        )
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0")
    missing = sorted(set(TABLES) - {name for (name,) in rows})
    if missing:  # a view or a virtual table of that name could run anything for ever
        raise StoreError(
            f"{shown(path)} is damaged: it has no table {missing[0]!r}", hint="give another path with --db"
        )
