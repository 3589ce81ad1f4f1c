"""Connections to the server of a fleet, with one clear line for each error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import DataError, DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from ckptprof.errors import StoreError, UsageError
from ckptprof.store.fleet.target import (
    SCHEME,
    ServerTarget,
    ServerUnreachableError,
    clear_libpq_environment,
    read_password,
)

_TIMEOUTS = {  # seconds without an answer, after which a server counts as unreachable
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
_INSUFFICIENT_PRIVILEGE = "42501"  # insufficient_privilege
_DATA_ERROR_CLASSES = (
    "22",
    "23",
    "54",
)  # classes of SQLSTATE: bad data, a violated constraint, a limit of the server
_MISSING_SCHEMA = ("3F000", "42P01")  # no such schema, no such table


@contextmanager
def connected(target: ServerTarget, password_file: Path | None = None) -> Iterator[Connection]:
    """Connect for the duration of the block; raises StoreError, UsageError where psycopg is not installed."""
    clear_libpq_environment()
    try:
        import psycopg  # noqa: PLC0415 # an extra
        from psycopg.conninfo import make_conninfo  # noqa: PLC0415 # likewise
    except ImportError as error:
        raise UsageError(
            "psycopg, the client of PostgreSQL, is not installed", hint="pip install 'ckptprof[postgres]'"
        ) from error
    secret = read_password(password_file)
    arguments = {**_TIMEOUTS, **target.parameters, "application_name": "ckptprof"}
    arguments |= {"password": secret} if secret is not None else {}
    with translated_server_errors(target):
        engine = create_engine(
            f"{SCHEME}://",
            creator=lambda: psycopg.connect(make_conninfo(**arguments), prepare_threshold=None),  # none: for pgbouncer
            poolclass=NullPool,
            use_native_hstore=False,  # it would query the server at each connection
        )
        with engine.connect() as connection:
            yield connection


@contextmanager
def translated_server_errors(target: ServerTarget) -> Iterator[None]:
    """Convert errors of SQLAlchemy and psycopg into a StoreError about the server."""
    try:
        yield
    except DBAPIError as error:
        raise _store_error(error, target) from error
    except NoSuchModuleError as error:
        raise UsageError(str(error)) from error
    except SQLAlchemyError as error:
        raise StoreError(f"{target.url}: {error}") from error


def sqlstate(error: DBAPIError) -> str:
    """SQLSTATE of a refusal by the server; empty for any other error."""
    return str(getattr(error.orig, "sqlstate", None) or "")


def is_data_error(error: DBAPIError) -> bool:
    """Test for errors caused by the rows: they would be refused again."""
    return sqlstate(error)[:2] in _DATA_ERROR_CLASSES or isinstance(error, DataError)


def _store_error(error: DBAPIError, target: ServerTarget) -> StoreError:
    code = sqlstate(error)
    reason = str(error.orig).strip().partition("\n")[0]
    if code in _MISSING_SCHEMA:
        return StoreError(
            f"{target.url} is not prepared: {reason}", hint=f"as its owner: ckptprof ship --prepare --to {target.url}"
        )
    if code == _INSUFFICIENT_PRIVILEGE:
        return StoreError(f"{target.url} refuses: {reason}", hint="docs/cluster.md names the role that a node needs")
    if not code or code[:2] in ("08", "57", "53"):
        return ServerUnreachableError(f"{target.url}: {reason}", hint="it is tried again")
    return StoreError(f"{target.url}: {reason}")
