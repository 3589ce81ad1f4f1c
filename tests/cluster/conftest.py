"""A server for all tests of this room, and a database of its own for each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.machine import need
from tests.postgres import Server, served


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """Return a server; whatever is in it is gone in the end."""
    need("postgres")
    with served() as started:
        yield started


@pytest.fixture
def fleet(server: Server) -> str:
    """Return the name of a database that is ready for nodes."""
    return server.database()
