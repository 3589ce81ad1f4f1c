"""Opening the database for a command that reads it."""

from __future__ import annotations

import gc
import glob
import os
import sys
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
from ckptprof.store.location import is_server

if TYPE_CHECKING:
    from ckptprof.store.reader import StoreReader

_BESIDE = ("-wal", "-shm", "-journal", ".lock")  # what lies beside a database, and is none


def elsewhere(db: object | None) -> str | None:
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
    """Open it for one answer, and say so if that takes long; raises StoreError. `prints`: the block does, by itself."""
    with _uncollected():
        from ckptprof.service.progress import waiting  # noqa: PLC0415 # as above

        with opened(db) as reader, nullcontext() if prints else waiting(f"reading {reader.path} ..."):
            yield reader


@contextmanager
def _uncollected() -> Iterator[None]:
    """Look for no cycles of objects within: what is imported and read has next to none.

    Looking through it again and again takes up to a third of the time of a report.
    """
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_collecting:
            gc.freeze()  # what was imported and read, for all that is still to come
            gc.enable()


def named(dbs: Sequence[str] | None) -> list[str | None]:
    """Return the databases of `--db`, each once, those of a folder or a pattern by name; None: it was not given.

    Raises StoreError for a folder that holds none, and a pattern that fits none.
    """
    if dbs is None:
        return [None]
    found: dict[str, str | None] = {}
    for text in dbs:
        if is_server(text):
            found.setdefault(text, text)
            continue
        for path in _meant(text):
            found.setdefault(os.path.realpath(path), path)
    return list(found.values())


def are_of_several(dbs: Sequence[str | None]) -> bool:
    """Return whether they tell of several nodes: more than one, or one on a server, which has all nodes."""
    return len(dbs) > 1 or any(db is not None and is_server(db) for db in dbs)


def _meant(text: str) -> list[str]:
    text = os.path.expanduser(text) if glob.has_magic(text) else text  # noqa: PTH111 # no error for one without a home
    if os.path.isdir(text):  # noqa: PTH112 # no error for a text that is no path
        return _some(os.path.join(glob.escape(text), "*.db"), f"no database in {text}")  # noqa: PTH118 # as typed
    if glob.has_magic(text) and not os.path.lexists(text):
        return _some(text, f"no database fits {text}")
    return [text]


def _some(pattern: str, otherwise: str) -> list[str]:
    fitting = (path for path in glob.glob(pattern) if not path.endswith(_BESIDE))  # noqa: PTH207 # as above
    found = sorted(path for path in fitting if os.path.isfile(path))  # noqa: PTH113 # as above
    if not found:
        raise StoreError(otherwise, hint="databases of nodes are files that end in .db there")
    return found


@dataclass(frozen=True)
class Several:
    """What several databases tell together."""

    checkpoints: list[ClusterCheckpoint]  # that fit the question
    records: list[NodeRecord]
    unread: list[str]  # why others could not be read; each names its own

    @property
    def report(self) -> Report:
        """Return the checkpoints, each as one, as a report of one host would have them."""
        from ckptprof.report.cluster.document import as_report  # noqa: PLC0415 # as above

        return as_report(self.checkpoints, self.records)

    def for_gpus(self, gpus: int | None) -> Several:
        """Return the same with what each checkpoint costs on so many GPUs; as it is where none are given."""
        from ckptprof.report import answer  # noqa: PLC0415 # as above

        wholes = answer.with_gpus(self.report, gpus).checkpoints
        told = [msgspec.structs.replace(one, whole=whole) for one, whole in zip(self.checkpoints, wholes, strict=True)]
        return replace(self, checkpoints=told)

    def complain(self) -> int:
        """Name on stderr what could not be read, and return the exit code that says so; 0 if all could be."""
        sys.stdout.flush()  # what that is missing in stands before it
        for one in self.unread:
            output.write(f"ckptprof: not read: {clean(one)}\n", sys.stderr)
        return StoreError.exit_code if self.unread else 0

    def conclude(self) -> int:
        """Complain, and return the exit code; raises NothingFoundError."""
        code = self.complain()
        if not self.checkpoints and code == 0:
            number = len(self.records)
            told = "the database has" if number == 1 else f"{number} databases have"
            raise NothingFoundError(
                f"{told} no checkpoint that fits the question", hint="loosen --since, --job and --kind if given"
            )
        return code


def reading_several(dbs: Sequence[str | None], query: CheckpointQuery | None) -> Several:
    """Read databases for one answer, None: to all there is; raises StoreError if none of them can be read."""
    from ckptprof.cluster.merging import merge  # noqa: PLC0415 # as above
    from ckptprof.report.cluster.document import chosen  # noqa: PLC0415 # as above
    from ckptprof.service.progress import waiting  # noqa: PLC0415 # as above

    with _uncollected(), waiting(f"reading {len(dbs)} databases ..."):
        found = [one for db in dbs for one in _records(db)]
        records = [one for one in found if isinstance(one, NodeRecord)]
        errors = [one for one in found if isinstance(one, StoreError)]
        if not records:
            raise errors[0]
        merged = merge(records)
        told = [*merged] if query is None else chosen(merged, records, query)
        return Several(told, records, [*map(str, errors)])


def reading_report(dbs: Sequence[str | None], query: CheckpointQuery) -> tuple[Report, int]:
    """Return the report of one database or several, and the exit code if some cannot be read; raises StoreError."""
    if not are_of_several(dbs):
        with reading(dbs[0]) as reader:
            return reader.report(query), 0
    found = reading_several(dbs, query)
    return found.report, found.complain()


def _records(db: str | None) -> list[NodeRecord | StoreError]:
    if db is None or not is_server(db):
        return [_record(db)]
    from ckptprof.store.fleet.reader import nodes_of  # noqa: PLC0415 # as above
    from ckptprof.store.watched import watched  # noqa: PLC0415 # as above

    try:
        nodes = nodes_of(db)
    except StoreError as error:
        return [error]
    if not nodes:
        return [StoreError(f"no node has sent anything to {db}", hint="let each node ship its checkpoints there first")]
    found: list[NodeRecord | StoreError] = [
        NodeRecord(
            database=db,
            host=node.host,
            watched=watched(node.sessions, None, None),
            checkpoints=node.checkpoints,
            session=next(reversed(node.sessions), None),
        )
        for node in nodes
    ]
    lost = ((node.host, node.unread) for node in nodes if node.unread)
    return found + [StoreError(f"{db}: {number} checkpoints of {host} are none") for host, number in lost]


def _record(db: str | None) -> NodeRecord | StoreError:
    """Return all that a database tells, or why it cannot be read.

    Whatever is asked for: clocks may be off, which all saves of a run tell, and a number is the same in each answer.
    """
    try:
        with opened(db) as reader:
            report, path = reader.report(CheckpointQuery()), str(reader.path)
            session = next(reversed(reader.sessions()), None)
            copies = reader.report(CheckpointQuery(kind=Kind.COPY)).checkpoints
    except StoreError as error:
        return error
    host = path if report.host is None else report.host  # nothing was recorded
    return NodeRecord(
        database=path,
        host=host,
        watched=report.watched,
        checkpoints=(*report.checkpoints, *copies),
        session=session,
    )
