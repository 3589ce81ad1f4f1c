"""Reads the data of all nodes from a server, in one consistent state."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from sqlalchemy import Connection, Text, cast, func, select

from ckptprof.errors import StoreError
from ckptprof.model import Checkpoint, Session
from ckptprof.store.checkpoint_rows import decode_checkpoint
from ckptprof.store.fleet import server_migrations
from ckptprof.store.fleet.server_connection import connected, translated_server_errors
from ckptprof.store.fleet.server_tables import checkpoints, sessions
from ckptprof.store.fleet.target import parse_target

MAX_CHECKPOINTS = 200_000  # 14 KB each in this process
_ROWS_PER_FETCH = 1000  # rows


class ShippedNode(msgspec.Struct, frozen=True, kw_only=True):
    """The data of one node."""

    host: str
    sessions: tuple[Session, ...]  # the oldest first
    checkpoints: tuple[Checkpoint, ...]  # in the order of their start
    unreadable: int  # checkpoints that cannot be decoded


def read_nodes(url: str) -> list[ShippedNode]:
    """Read all nodes, sorted by name; raises StoreError, and UsageError for an invalid URL."""
    target = parse_target(url)
    with connected(target) as connection, translated_server_errors(target):
        server_migrations.check_version(connection)
        connection.rollback()
        with connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True).begin():
            _check_count(connection, url)
            lives: dict[str, list[Session]] = {}
            for session in _read_sessions(connection):
                lives.setdefault(session.host, []).append(session)
            found: dict[str, list[Checkpoint]] = {}
            unread: dict[str, int] = {}
            for node, detail in _read_details(connection):
                one = _decode_checkpoint(detail)
                if one is None:
                    unread[node] = unread.get(node, 0) + 1
                else:
                    found.setdefault(node, []).append(one)
    return [
        ShippedNode(
            host=node, sessions=tuple(lives.get(node, ())), checkpoints=tuple(found.get(node, ())),
            unreadable=unread.get(node, 0),
        )
        for node in sorted({*lives, *found, *unread})
    ]  # fmt: skip


def _check_count(connection: Connection, url: str) -> None:
    some = select(checkpoints.c.uid).limit(MAX_CHECKPOINTS + 1).subquery()
    if connection.execute(select(func.count()).select_from(some)).scalar_one() > MAX_CHECKPOINTS:
        raise StoreError(
            f"{url} has more than {MAX_CHECKPOINTS:,} checkpoints, which are not read at once",
            hint="query ckptprof.checkpoints there in SQL, or drop old days: SELECT ckptprof.drop_before(TIME)",
        )


def _decode_checkpoint(detail: str) -> Checkpoint | None:
    """Decode a checkpoint; None if a node sent something else."""
    try:
        return decode_checkpoint(detail)
    except (msgspec.MsgspecError, RecursionError, ValueError, OverflowError):
        return None


def _read_sessions(connection: Connection) -> Iterator[Session]:
    names = [name for name in Session.__struct_fields__ if name != "host"]
    statement = select(sessions.c.node, *(sessions.c[name] for name in names))
    rows = connection.execute(statement.order_by(sessions.c.start_ns, sessions.c.uid))
    return (msgspec.convert(dict(zip(("host", *names), row, strict=True)), Session) for row in rows)


def _read_details(connection: Connection) -> Iterator[tuple[str, str]]:
    statement = select(checkpoints.c.node, cast(checkpoints.c.detail, Text))
    ordered = statement.order_by(checkpoints.c.first_start_ns, checkpoints.c.uid)
    rows = connection.execution_options(yield_per=_ROWS_PER_FETCH).execute(ordered)
    return ((node, detail) for node, detail in rows)
