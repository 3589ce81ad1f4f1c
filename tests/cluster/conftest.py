"""A PostgreSQL server for the tests of this room."""

from tests.postgres import fleet, server

__all__ = ["fleet", "server"]
