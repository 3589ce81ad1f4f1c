"""Open databases for the commands that read them."""

from __future__ import annotations

import gc
import glob
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from ckptprof.cli import output
from ckptprof.cluster.model import ClusterCheckpoint, NodeRecord
from ckptprof.errors import NothingFoundError, StoreError
from ckptprof.model import CheckpointQuery, Kind, Report
from ckptprof.report.clean import clean

if TYPE_CHECKING:
    from ckptprof.report.live.state import Underway
    from ckptprof.store.reader import StoreReader

_COMPANION_SUFFIXES = ("-wal", "-shm", "-journal", ".lock")  # files next to a database


def hint_service_database(db: object | None) -> str | None:
    """Return a hint to read the service's database, if the user's own one was read by default; else None."""
    from ckptprof.store.location import SERVICE_DATABASE, path_to_read  # noqa: PLC0415 # as below

    if db is not None or path_to_read() == SERVICE_DATABASE or not os.access(SERVICE_DATABASE, os.R_OK):
        return None
    return f"this is your own database; the service records to {SERVICE_DATABASE}: read it with --db"


@contextmanager
def open_database(db: str | None) -> Iterator[StoreReader]:
    """Open the database of `--db`, or that of `path_to_read`; raises StoreError."""
    from ckptprof.store.location import path_to_read  # noqa: PLC0415 # `--help` of a command needs no database
    from ckptprof.store.reader import StoreReader  # noqa: PLC0415 # SQLAlchemy: 0.1 s that only a query pays

    with StoreReader(path_to_read() if db is None else db) as reader:
        yield reader


@contextmanager
def read_database(db: str | None, *, prints: bool = False) -> Iterator[StoreReader]:
    """Open a database for one answer, with a message if it takes long; `prints`: without. Raises StoreError."""
    with _without_gc():
        from ckptprof.service.progress_line import show_while_waiting  # noqa: PLC0415 # as above

        with open_database(db) as reader, nullcontext() if prints else show_while_waiting(f"reading {reader.path} ..."):
            yield reader


@contextmanager
def _without_gc() -> Iterator[None]:
    """Disable the garbage collector: it takes up to a third of the time of a report, and finds almost no cycles."""
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_collecting:
            gc.freeze()  # exclude imports and records from later collections
            gc.enable()


def hung_saves(reader: StoreReader, query: CheckpointQuery) -> tuple[Underway, ...]:
    """Return the saves of a query that hang now, if a recorder is running."""
    from ckptprof.store.recorded_time import running_session  # noqa: PLC0415 # as above

    now_ns = time.time_ns()
    is_past = query.until_ns is not None and query.until_ns < now_ns
    pending = reader.pending() if not is_past and running_session(reader.sessions(), now_ns) is not None else {}
    if not pending:
        return ()
    from ckptprof.report.live.state import underway  # noqa: PLC0415 # only while something is in progress
    from ckptprof.report.summary import matches_job  # noqa: PLC0415 # as above
    from ckptprof.service.recorder.pending import unfinished_checkpoints  # noqa: PLC0415 # as above

    found = [underway(one) for one in unfinished_checkpoints(pending.values()) if matches_job(one.job, query.job)]
    return tuple(one for one in found if one.hung is not None)


def expand_databases(dbs: Sequence[str] | None) -> list[str | None]:
    """Expand the values of `--db`, folders and patterns included, without duplicates; None in the list: the default.

    Raises StoreError for a folder or pattern without a database.
    """
    if dbs is None:
        return [None]
    found: dict[str, str | None] = {}
    for text in dbs:
        for path in _expand(text):
            found.setdefault(os.path.realpath(path), path)
    return list(found.values())


def _expand(text: str) -> list[str]:
    text = os.path.expanduser(text) if glob.has_magic(text) else text  # noqa: PTH111 # no error for one without a home
    if os.path.isdir(text):  # noqa: PTH112 # no error for a text that is no path
        return _match_files(os.path.join(glob.escape(text), "*.db"), f"no database in {text}")  # noqa: PTH118 # as typed
    if glob.has_magic(text) and not os.path.lexists(text):
        return _match_files(text, f"no database matches {text}")
    return [text]


def _match_files(pattern: str, otherwise: str) -> list[str]:
    fitting = (path for path in glob.glob(pattern) if not path.endswith(_COMPANION_SUFFIXES))  # noqa: PTH207 # as above
    found = sorted(path for path in fitting if os.path.isfile(path))  # noqa: PTH113 # as above
    if not found:
        raise StoreError(otherwise, hint="node databases are files that end in .db")
    return found


def complain(unread: Sequence[str]) -> int:
    """Report unreadable databases on stderr; return the exit code, 0 if there are none."""
    sys.stdout.flush()  # the incomplete output comes first
    for one in unread:
        output.write(f"ckptprof: not read: {clean(one)}\n", sys.stderr)
    return StoreError.exit_code if unread else 0


@dataclass(frozen=True)
class MergedDatabases:
    """The merged contents of several databases."""

    checkpoints: list[ClusterCheckpoint]  # that match the query
    records: list[NodeRecord]
    unread: list[str]  # errors of databases that could not be read

    @property
    def report(self) -> Report:
        """The merged checkpoints as the report of one host."""
        from ckptprof.report.cluster.cluster_document import merge_into_report  # noqa: PLC0415 # as above

        return merge_into_report(self.checkpoints, self.records)

    def with_gpus(self, gpus: int | None) -> MergedDatabases:
        """Return a copy with costs for this number of GPUs; unchanged for None."""
        from ckptprof.report import answer  # noqa: PLC0415 # as above

        wholes = answer.with_gpus(self.report, gpus).checkpoints
        checkpoints = [
            msgspec.structs.replace(one, whole=whole) for one, whole in zip(self.checkpoints, wholes, strict=True)
        ]
        return replace(self, checkpoints=checkpoints)

    def complain(self) -> int:
        """Report unreadable databases on stderr; return the exit code, 0 if there are none."""
        return complain(self.unread)

    def conclude(self) -> int:
        """Report unreadable databases and return the exit code; raises NothingFoundError without a checkpoint."""
        code = self.complain()
        if not self.checkpoints and code == 0:
            number = len(self.records)
            subject = "the database has" if number == 1 else f"{number} databases have"
            raise NothingFoundError(
                f"{subject} no matching checkpoint", hint="loosen --since, --job and --kind if given"
            )
        return code


def read_databases(dbs: Sequence[str | None], query: CheckpointQuery | None) -> MergedDatabases:
    """Read and merge databases; `query` None: everything. Raises StoreError if none can be read."""
    from ckptprof.cluster.merging import merge  # noqa: PLC0415 # as above
    from ckptprof.report.cluster.cluster_document import select  # noqa: PLC0415 # as above
    from ckptprof.service.progress_line import show_while_waiting  # noqa: PLC0415 # as above

    with _without_gc(), show_while_waiting(f"reading {len(dbs)} databases ..."):
        found = [*map(_read_node, dbs)]
        records = [one for one in found if isinstance(one, NodeRecord)]
        errors = [one for one in found if isinstance(one, StoreError)]
        if not records:
            raise errors[0]
        merged = merge(records)
        selected = [*merged] if query is None else select(merged, records, query)
        return MergedDatabases(selected, records, [*map(str, errors)])


def read_report(dbs: Sequence[str | None], query: CheckpointQuery) -> tuple[Report, int]:
    """Return the report of one or several databases, and the exit code for unreadable ones; raises StoreError."""
    if len(dbs) == 1:
        with read_database(dbs[0]) as reader:
            return reader.report(query), 0
    found = read_databases(dbs, query)
    return found.report, found.complain()


def _read_node(db: str | None) -> NodeRecord | StoreError:
    """Return the contents of a database, or the error.

    Everything is read, whatever the query: clock offsets need all saves of a run, and ids must not depend on the query.
    """
    try:
        with open_database(db) as reader:
            report, path = reader.report(CheckpointQuery()), str(reader.path)
            session = next(reversed(reader.sessions()), None)
            copies = reader.report(CheckpointQuery(kind=Kind.COPY)).checkpoints
    except StoreError as error:
        return error
    host = path if report.host is None else report.host  # nothing is recorded
    return NodeRecord(
        database=path,
        host=host,
        watched=report.watched,
        checkpoints=(*report.checkpoints, *copies),
        session=session,
    )
