"""Queries of the database: read-only, of one consistent state each, without blocking the agent.

`records` uses SQLAlchemy, which is imported only for that: a recorder's own queries are in `compiled`.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice, pairwise
from pathlib import Path
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any

import msgspec

from ckptprof.errors import StoreError
from ckptprof.model import Checkpoint, CheckpointQuery, Interval, Report, Session
from ckptprof.store.checkpoint_rows import decode_checkpoint, get_pending, get_sessions, recorded_spans
from ckptprof.store.connection import check_file, copy_and_close, log_bytes, open_reader, snapshot
from ckptprof.store.location import (
    missing_data_hint,
    path_of_database,
    permission_hint,
    printable_path,
)
from ckptprof.store.lock import is_writer_alive
from ckptprof.store.migrations import LATEST_SCHEMA, check_version, migrate
from ckptprof.store.problems import translated_errors
from ckptprof.store.publication import open_copy, read_sequence
from ckptprof.store.quarantine import list_set_aside
from ckptprof.store.recorded_time import summarize_recorded
from ckptprof.store.series.series_reader import read_series
from ckptprof.store.series.strips import Strip
from ckptprof.store.sql import BLOCK_TABLES, compiled
from ckptprof.store.sql_queries import MAX_ROWS, MAX_SECONDS, QueryResult, ReadLimits, run_query

if TYPE_CHECKING:
    from typing_extensions import Self

    from ckptprof.store.records import Records

_ROWS_PER_FETCH = 1000  # rows
_MAX_REPORT_CHECKPOINTS = 100_000  # of a report: about 5 s and 400 MB
_MIGRATED_COPY = -1  # as a sequence number: there is always a newer one


class StoreReader:
    """Opens a database that exists; every method raises StoreError with one clear line."""

    def __init__(self, path: str | Path) -> None:
        """Open it; raises StoreError if it is missing, empty, of another program or version, or damaged."""
        self.path = path_of_database(path)
        self._open()

    def _open(self) -> None:
        _check_exists(self.path)
        with translated_errors(self.path):
            self._connection, self._sequence = _open_connection(self.path)
            try:
                if _read_version(self._connection, self.path) < LATEST_SCHEMA:
                    self._connection, self._sequence = copy_and_close(self._connection), _MIGRATED_COPY
                self._limits = ReadLimits(self._connection, self.path.stat().st_size + log_bytes(self.path))
                migrate(self._connection, printable_path(self.path))
                self._connection.execute("PRAGMA query_only = ON")
                _check_tables(self._connection, self.path)
            except BaseException:
                self._connection.close()
                raise

    def reopen_if_newer(self) -> None:
        """Open it again if this is a copy and there is a newer one; raises as opening does."""
        if self._sequence not in (None, read_sequence(self.path)):
            self.close()
            self._open()

    def close(self) -> None:
        """Close it; a second call does nothing."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def report(self, query: CheckpointQuery) -> Report:
        """Checkpoints that overlap the query's time, oldest first, without streams, devices and timelines."""
        from ckptprof.store import records  # noqa: PLC0415 # SQLAlchemy: 0.1 s and 15 MB, not for a recorder

        with self._snapshot() as raw:
            chosen = records.select_ids(query)
            if query.limit is None and (found := records.count(raw, chosen)) > _MAX_REPORT_CHECKPOINTS:
                raise StoreError(
                    f"{printable_path(self.path)} has {found:,} checkpoints of this time, more than "
                    f"{_MAX_REPORT_CHECKPOINTS:,}",
                    hint="choose fewer with --since, --until, --job, --kind or --limit",
                )
            sessions = get_sessions(raw)
            checkpoints = records.read_checkpoints(raw, chosen, with_details=False)
            left_out = 0 if query.kind is not None else records.count(raw, records.select_omitted_copies(query))
        recorded = summarize_recorded(sessions, query.since_ns, query.until_ns)
        recorded = msgspec.structs.replace(recorded, set_aside=tuple(map(printable_path, list_set_aside(self.path))))
        host = sessions[-1].host if sessions else None
        return Report(host=host, watched=recorded, checkpoints=tuple(checkpoints), copies_left_out=left_out)

    def checkpoint(self, identity: int) -> Checkpoint | None:
        """Read one checkpoint with all details; None if there is none."""
        from ckptprof.store import records  # noqa: PLC0415 # as above

        if not 0 < identity <= records.MAX_SQLITE_INT:
            return None
        with self._snapshot() as raw:
            return next(iter(records.read_checkpoints(raw, records.select_id(identity), with_details=True)), None)

    def id_of(self, uid: str) -> int | None:
        """Id of the checkpoint with a uid; the uid is the same in every database."""
        with self._snapshot() as raw:
            found = raw.execute(compiled.ID_OF, {"known_uid": uid}).fetchone()
            return None if found is None else int(found[0])

    def recent_paths(self, limit: int) -> list[str]:
        """Paths of the newest checkpoints, each once, newest first: possible sources of a restore."""
        with self._snapshot() as raw:
            paths = raw.execute(compiled.PATHS, {"most": max(limit, 0)})
            return [path for (path,) in paths if isinstance(path, str)]

    def pending(self) -> dict[str, bytes]:
        """Checkpoints that were not reported when the agent ended, encoded, by uid."""
        with self._snapshot() as raw:
            return get_pending(raw)

    def interrupted_saves(self, since_ns: int, until_ns: int) -> list[Checkpoint]:
        """Read the saves that were in progress when recording ended, with all details, oldest first."""
        with self._snapshot() as raw:
            rows = raw.execute(compiled.INTERRUPTED_SAVES, {"since_ns": since_ns, "until_ns": until_ns})
            return [decode_checkpoint(*row) for row in rows]

    def sessions(self) -> list[Session]:
        """Sessions of recorders, oldest first."""
        with self._snapshot() as raw:
            return get_sessions(raw)

    def entities(self) -> list[str]:
        """Names of all entities with a timeline, sorted."""
        with self._snapshot() as raw:
            return [name for (name,) in raw.execute(compiled.ENTITIES)]

    def lives(self, pid: int, since_ns: int, until_ns: int) -> list[Interval]:
        """Read when the counters of each process with a pid first and last changed in a time."""
        with self._snapshot() as raw:
            names = raw.execute("SELECT name FROM entities WHERE name GLOB ?", (f"process:{pid}:*",)).fetchall()
            every = [read_series(raw, name, (since_ns, until_ns), None, None).times_ns for (name,) in names]
        inside = [[at_ns for at_ns in times_ns if since_ns <= at_ns <= until_ns] for times_ns in every]
        return [Interval(times_ns[0], times_ns[-1]) for times_ns in inside if times_ns]

    def files(self, first: int, last: int) -> dict[int, list[str]]:
        """Read the paths of the files of checkpoints with ids from `first` to `last`, by id.

        First those at or below the path of the checkpoint, the largest before the others.
        """
        found: dict[int, list[str]] = {}
        query = (
            "SELECT c.id, s.path FROM streams AS s JOIN checkpoints AS c ON c.id = s.checkpoint_id"
            " WHERE c.id BETWEEN ? AND ? GROUP BY 1, 2"
            " ORDER BY 1, s.path != c.path AND instr(s.path, c.path || '/') != 1, sum(s.bytes) DESC, 2"
        )
        with self._snapshot() as raw:
            for key, path in raw.execute(query, (first, last)):
                found.setdefault(key, []).append(str(path))
        return found

    def oom_kills(self, since_ns: int, until_ns: int) -> list[int]:
        """Read when the kernel killed a process of the host for lack of memory."""
        strip = self.series("memory", since_ns, until_ns)
        counts = pairwise(zip(strip.times_ns, strip.columns.get("oom_kills", ()), strict=False))
        return [at_ns for (_, before), (at_ns, now) in counts if before is not None and (now or 0) > before]

    def series(self, entity: str, since_ns: int, until_ns: int, *, step_seconds: int | None = None) -> Strip:
        """Read the points of an entity; none if it is unknown.

        Without a step the first point may be before `since_ns`: it has the values valid then. With a step of whole
        minutes the roll-ups are read, which is as fast for a month as for a day.
        """
        if step_seconds is not None and step_seconds < 1:
            raise StoreError(f"a step of {step_seconds} s makes no series")
        with self._snapshot() as raw:
            return read_series(raw, entity, (since_ns, until_ns), step_seconds, recorded_spans(raw))

    def run_query(self, statement: str, *, seconds: float = MAX_SECONDS, rows: int = MAX_ROWS) -> QueryResult:
        """Run one SELECT; raises UsageError for any other statement, CkptprofError after the time limit."""
        with self._snapshot() as raw:
            return run_query(raw, statement, seconds=seconds, rows=rows)

    def columns(self) -> dict[str, list[str]]:
        """Column names of each table and view, views first: those are the interface for other programs."""
        with self._snapshot() as raw:
            named = raw.execute(
                "SELECT m.name, c.name FROM sqlite_master AS m, pragma_table_info(m.name) AS c"
                " WHERE m.type IN ('table', 'view') ORDER BY m.type = 'table', m.name, c.cid"
            )
            found: dict[str, list[str]] = {}
            for table, column in named:
                found.setdefault(str(table), []).append(str(column))
            return found

    @contextmanager
    def records(self, name: str, query: CheckpointQuery) -> Iterator[Records]:
        """Yield the rows of a table that match a query; they are read as they are consumed."""
        from ckptprof.store import records  # noqa: PLC0415 # as above

        with snapshot(self._connection) as raw:  # errors inside are converted only while reading
            self._limits.start_answer()
            with translated_errors(self.path):
                found = records.read_table(raw, name, query)
            yield records.Records(found.fields, self._guarded_rows(found.rows))

    def _guarded_rows(self, rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        while True:
            self._limits.start_part()
            with translated_errors(self.path):
                some = list(islice(rows, _ROWS_PER_FETCH))
            if not some:
                return
            yield from some

    def file_metadata(self) -> dict[str, str]:
        """Origin of the data, for the metadata of exported files."""
        sessions = self.sessions()
        return {"ckptprof.schema_version": str(LATEST_SCHEMA), "ckptprof.host": sessions[-1].host if sessions else ""}

    @contextmanager
    def _snapshot(self) -> Iterator[Connection]:
        with translated_errors(self.path), snapshot(self._connection) as raw:
            self._limits.start_answer()
            yield raw


def _check_exists(path: Path) -> None:
    try:
        size = check_file(path)
    except FileNotFoundError:
        raise StoreError(f"no database at {printable_path(path)}", hint=missing_data_hint(path)) from None
    except OSError as error:
        raise StoreError(f"{printable_path(path)}: {error.strerror}", hint=permission_hint(path)) from error
    if size == 0:
        raise StoreError(f"{printable_path(path)} is empty", hint=missing_data_hint(path))


def _open_connection(path: Path) -> tuple[Connection, int | None]:
    """Open normally; where the log's index cannot be created (a read-only directory), as an immutable file.

    The index of a published database is opened only by its owner and root, and created by no reader, since others could
    open it. Other users get a copy, with its sequence number.
    """
    index, log = (path.with_name(path.name + suffix) for suffix in ("-shm", "-wal"))
    if read_sequence(path) is not None and not (index.exists() and os.access(path, os.W_OK, effective_ids=True)):
        return open_copy(path)
    try:
        return open_reader(path, immutable=False), None
    except sqlite3.OperationalError:
        if is_writer_alive(path) is not False or (log.exists() and log.stat().st_size):
            raise
        return open_reader(path, immutable=True), None


def _read_version(connection: Connection, path: Path) -> int:
    version = check_version(connection, printable_path(path))
    if version == 0:
        raise StoreError(f"{printable_path(path)} is empty", hint=missing_data_hint(path))
    return version


def _check_tables(connection: Connection, path: Path) -> None:
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0")
    missing = sorted({*compiled.TABLES, *BLOCK_TABLES} - {name for (name,) in rows})
    if missing:  # a view or a virtual table of that name could run any code for ever
        raise StoreError(
            f"{printable_path(path)} is damaged: it has no table {missing[0]!r}", hint="give another path with --db"
        )
