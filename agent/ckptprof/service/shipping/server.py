"""A PostgreSQL server to ship to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ckptprof.service.shipping.sinks import Taker, Way
from ckptprof.store.fleet.connecting import connected, told
from ckptprof.store.fleet.sink import Sink
from ckptprof.store.fleet.target import Target


def to_server(target: Target, password_file: Path | None = None) -> Way:
    """Return the way to a PostgreSQL server."""

    @contextmanager
    def opened(node: str, database: str) -> Iterator[Taker]:
        with connected(target, password_file) as connection, told(target):
            yield Sink(connection, node, database)

    return opened
