"""Limits of time, memory and text for reading any database, even a hostile one, and the queries of `ckptprof sql`."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from ckptprof.errors import CkptprofError, UsageError

MAX_SECONDS = 10.0
MAX_ROWS = 100_000
_MAX_HEAP_BYTES = 256 << 20  # of SQLite in this process
_MAX_VALUE_BYTES = 16 << 20
_MIN_CPU_SECONDS = 10.0  # of CPU for one answer of a small database; a report of 300,000 checkpoints, 320 MB, takes 12
_CPU_SECONDS_PER_BYTE = 5e-7
_MAX_TEXT_RATIO = 16  # times the size of the file: rows become JSON, with names
_CLOCK_CHECK_STEPS = 10_000  # of SQLite's virtual machine between two checks of the clock: about 0.1 ms
# https://www.sqlite.org/c3ref/c_alter_table.html: SQLITE_READ, SELECT, FUNCTION, RECURSIVE
_FUNCTION = 31
_ALLOWED_ACTIONS = frozenset((20, 21, _FUNCTION, 33))
_FORBIDDEN_FUNCTIONS = frozenset(("load_extension", "fts3_tokenizer", "readfile", "writefile", "edit"))
# Texts of errors that are caused by the file; all others are caused by the statement
_READ_ONLY_HINT = "a statement cannot change a database or open another one"
_FILE_ERRORS = ("malformed", "not a database", "locked", "i/o error", "is full", "unable to open", "readonly")


class ReadLimits:
    """Bounds the reads of a connection by the size of its file: a crafted file may yield endless rows."""

    def __init__(self, raw: sqlite3.Connection, size_bytes: int) -> None:
        self._max_seconds = _MIN_CPU_SECONDS + size_bytes * _CPU_SECONDS_PER_BYTE
        self._max_text_bytes = _MAX_TEXT_RATIO * size_bytes + _MAX_VALUE_BYTES
        self.start_answer()
        raw.execute(f"PRAGMA hard_heap_limit = {_MAX_HEAP_BYTES}")
        if hasattr(raw, "setlimit"):  # Python 3.11; before, the heap is the limit
            raw.setlimit(0, _MAX_VALUE_BYTES)  # SQLITE_LIMIT_LENGTH
        raw.set_progress_handler(self._is_past_deadline, _CLOCK_CHECK_STEPS)
        raw.text_factory = self._decode

    def start_answer(self) -> None:
        """Reset the limits for the next query."""
        self._remaining_bytes = self._max_text_bytes
        self.start_part()

    def start_part(self) -> None:
        """Start another part of a streamed answer."""
        self._deadline = (
            time.thread_time() + self._max_seconds
        )  # of CPU time: a busy host is no evidence of a crafted file

    def _is_past_deadline(self) -> bool:
        return time.thread_time() > self._deadline

    def _decode(self, data: bytes) -> str:
        self._remaining_bytes -= len(data)
        if len(data) > _MAX_VALUE_BYTES:
            raise sqlite3.DatabaseError("too big")
        if self._remaining_bytes < 0:
            raise sqlite3.DatabaseError("more text than there is room for")
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise sqlite3.DatabaseError("could not decode a text") from error


class QueryResult(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of a statement, in its order."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    is_truncated: bool  # there are more rows


def run_query(raw: sqlite3.Connection, statement: str, *, seconds: float, rows: int) -> QueryResult:
    """Run one SELECT; raises UsageError for any other statement, sqlite3.Error for a bad file."""
    with _query_limits(raw, seconds):
        cursor = raw.cursor()
        try:
            cursor.execute(statement)
            if cursor.description is None:
                raise UsageError("this statement returns no rows", hint="give a SELECT; without it, tables are listed")
            fetched = cursor.fetchmany(rows + 1)
        except sqlite3.DatabaseError as error:
            raise _explain(error, seconds) from error
        except sqlite3.Warning as error:  # more than one statement, before Python 3.12
            raise UsageError("give one statement at a time") from error
        except MemoryError as error:
            raise CkptprofError(
                f"the result needs more than {_MAX_HEAP_BYTES >> 20} MiB", hint="select fewer rows or columns"
            ) from error
        finally:
            cursor.close()
        return QueryResult(
            columns=tuple(column[0] for column in cursor.description),
            rows=fetched[:rows],
            is_truncated=len(fetched) > rows,
        )


@contextmanager
def _query_limits(raw: sqlite3.Connection, seconds: float) -> Iterator[None]:
    deadline = time.monotonic() + seconds
    factory = raw.text_factory
    raw.execute("PRAGMA temp_store = MEMORY")  # no temporary files for a query
    raw.set_authorizer(_authorize)
    raw.set_progress_handler(lambda: time.monotonic() > deadline, _CLOCK_CHECK_STEPS)
    raw.text_factory = _decode_escaped
    try:
        yield
    finally:
        raw.text_factory = factory
        raw.set_progress_handler(None, 0)
        raw.set_authorizer(None)


def _authorize(action: int, _first: str | None, second: str | None, *_: str | None) -> int:
    if action == _FUNCTION and (second or "").lower() in _FORBIDDEN_FUNCTIONS:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _ALLOWED_ACTIONS else sqlite3.SQLITE_DENY


def _decode_escaped(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _explain(error: sqlite3.DatabaseError, seconds: float) -> Exception:
    text = str(error)
    lower = text.lower()
    if "interrupted" in lower:
        return CkptprofError(f"no result within {seconds:g} s", hint="select less: a stricter WHERE, a shorter time")
    if any(part in lower for part in ("not authorized", "prohibited", "cannot vacuum")):
        return UsageError("only SELECT is allowed", hint=_READ_ONLY_HINT)
    if "one statement" in lower:
        return UsageError("give one statement at a time")
    if any(part in lower for part in _FILE_ERRORS):
        return error
    return UsageError(f"SQLite: {text}", hint="`ckptprof sql` lists the tables and their columns")
