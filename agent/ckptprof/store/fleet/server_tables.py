"""The tables on the server in SQLAlchemy; `server_migrations` creates them. Times are epoch nanoseconds.

`detail` has the checkpoint as the node stores it; PostgreSQL derives the columns for queries from it.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, DateTime, LargeBinary, MetaData, Table, Text
from sqlalchemy.dialects.postgresql import JSONB

from ckptprof.model import Session

metadata = MetaData(schema="ckptprof")
_KINDS = {"str": Text, "int": BigInteger, "bool": Boolean}

nodes = Table(  # the databases of nodes, and how far each was shipped
    "nodes",
    metadata,
    Column("node", Text, primary_key=True),
    Column("database", Text, primary_key=True),  # the uid of its first session
    Column("change", BigInteger),  # the last shipped one
    Column("last_id", BigInteger),  # the largest checkpoint id by then
    Column("lost", BigInteger),  # checkpoints deleted before they were shipped
    Column("version", Text),
    Column("last_seen", DateTime(timezone=True)),
)
sessions = Table(
    "sessions",
    metadata,
    Column("node", Text, primary_key=True),
    Column("database", Text, primary_key=True),
    *(
        Column(name, _KINDS[str(kind)], primary_key=name == "uid")
        for name, kind in ((name, Session.__annotations__[name]) for name in Session.__struct_fields__)
    ),
)
checkpoints = Table(
    "checkpoints",
    metadata,
    Column("first_start_ns", BigInteger, primary_key=True),  # start as first stored: its day is its partition
    Column("node", Text, primary_key=True),
    Column("uid", Text, primary_key=True),
    Column("revision", BigInteger),
    Column("detail", JSONB),
)
quarantine = Table(  # refused events
    "quarantine",
    metadata,
    Column("node", Text, primary_key=True),
    Column("uid", Text, primary_key=True),
    Column("revision", BigInteger),
    Column("reason", Text),
    Column("event", LargeBinary),  # its first bytes
)
