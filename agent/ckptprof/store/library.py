"""Which SQLite library this is, for `ckptprof doctor`."""

from __future__ import annotations

import sqlite3


def sqlite_version() -> tuple[int, ...]:
    """Return the version of the library in use."""
    return sqlite3.sqlite_version_info


def has_wal_reset_fix(version: tuple[int, ...]) -> bool:
    """Return whether it has the fix of the WAL-reset bug (3.51.3 and 3.53.0, see sqlite.org/changes.html)."""
    return version >= (3, 53, 0) or (3, 51, 3) <= version < (3, 52, 0)
