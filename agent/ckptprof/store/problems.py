"""Errors of a database, with one clear line each."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ckptprof.errors import StoreError
from ckptprof.store.location import printable_path
from ckptprof.store.series.blocks import BlockError


class StoreTransientError(StoreError):
    """A retry may succeed: the database itself is intact."""


class StoreBusyError(StoreTransientError):
    """Another process has the database's lock now."""


class StoreFullError(StoreTransientError):
    """The disk is full; committed data is not lost, and a retry may succeed."""


class StoreDamagedError(StoreError):
    """The database is damaged; a new one must replace it."""


REPLACE_HINT = "move it away; the next start makes a new one"
_READ_ONLY = "{} cannot be written: it or its directory is read-only"
# sqlite3 gives error codes only since Python 3.11; the texts of SQLite's codes have not changed in 20 years
_SQLITE_ERRORS: tuple[tuple[str, type[StoreError], str, str], ...] = (
    ("not a database", StoreDamagedError, "{} is not a database", "give another path with --db"),
    ("malformed", StoreDamagedError, "{} is damaged", REPLACE_HINT),
    ("readonly", StoreTransientError, _READ_ONLY, "check its owner and the mount"),
    ("read-only", StoreTransientError, _READ_ONLY, "check its owner and the mount"),
    ("i/o error", StoreTransientError, "the disk does not read or write {}", "check the disk: `dmesg` has details"),
    ("unable to open", StoreError, "{} cannot be opened", "check that you may read it and its directory"),
    ("locked", StoreBusyError, "{} is locked by another program", "try again when it is done"),
    ("could not decode", StoreDamagedError, "{} is damaged", REPLACE_HINT),
    ("json cannot hold", StoreDamagedError, "{} is damaged", REPLACE_HINT),
    ("too big", StoreDamagedError, "{} is damaged: one of its values is too large", REPLACE_HINT),
    ("more text", StoreDamagedError, "{} is damaged: it contains more text than its size allows", REPLACE_HINT),
    ("interrupted", StoreDamagedError, "{} is damaged: reading it takes too long", REPLACE_HINT),
    ("no such", StoreDamagedError, "{} is damaged: a part of its schema is missing", REPLACE_HINT),
)


@contextmanager
def translated_errors(path: Path) -> Iterator[None]:
    """Convert errors of SQLite, the codec and the system into a StoreError about `path`."""
    try:
        yield
    except StoreError:
        raise
    except sqlite3.Error as error:
        raise _from_sqlite_text(str(error), path) from error
    except OSError as error:
        raise _from_os_error(error, path) from error
    except MemoryError as error:
        raise StoreDamagedError(
            f"{printable_path(path)} is damaged: reading it takes too much memory", hint=REPLACE_HINT
        ) from error
    except (BlockError, msgspec.MsgspecError) as error:
        raise StoreError(
            f"{printable_path(path)} is damaged: {error}", hint="move it away, or query another time"
        ) from error
    except (OverflowError, ValueError, TypeError) as error:
        raise StoreError(f"{printable_path(path)}: {type(error).__name__}: {error}") from error


def _from_sqlite_text(text: str, path: Path) -> StoreError:
    name = printable_path(path)
    lower = text.lower()
    if "is full" in lower or ("i/o error" in lower and _is_disk_full(path)):
        return disk_full_error(path)
    for part, kind, message, hint in _SQLITE_ERRORS:
        if part in lower:
            return kind(message.format(name), hint=hint)
    return StoreError(f"{name}: {text}")


def _from_os_error(error: OSError, path: Path) -> StoreError:
    where = (
        printable_path(Path(os.fsdecode(error.filename)))
        if isinstance(error.filename, (str, bytes))
        else printable_path(path)
    )
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return disk_full_error(path)
    kind = StoreTransientError if error.errno in {errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE} else StoreError
    return kind(f"{where}: {error.strerror or error}", hint="give another path with --db")


def disk_full_error(path: Path) -> StoreFullError:
    """Error for a full disk."""
    return StoreFullError(
        f"no space left on the disk for {printable_path(path)}", hint="free some space; recording continues"
    )


def _is_disk_full(path: Path) -> bool:
    try:
        state = os.statvfs(path.parent)
    except OSError:
        return False
    return state.f_bavail * state.f_frsize < 1 << 20
