"""The tables on the server as SQLAlchemy sees them; `steps` creates them. Times are epoch nanoseconds.

What a checkpoint is stands in `detail`, as the node has it; PostgreSQL derives the columns that people ask for.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, DateTime, LargeBinary, MetaData, Table, Text
from sqlalchemy.dialects.postgresql import JSONB

from ckptprof.model import Session

metadata = MetaData(schema="ckptprof")
_KINDS = {"str": Text, "int": BigInteger, "bool": Boolean}

nodes = Table(  # the databases of nodes, and how far each was taken
    "nodes",
    metadata,
    Column("node", Text, primary_key=True),
    Column("database", Text, primary_key=True),  # the uid of its first session
    Column("change", BigInteger),  # its last that was taken, with all before
    Column("last_id", BigInteger),  # the largest number of a checkpoint by then
    Column("lost", BigInteger),  # checkpoints that were gone there before they were taken
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
    Column("first_start_ns", BigInteger, primary_key=True),  # as it was stored first: its day is its partition
    Column("node", Text, primary_key=True),
    Column("uid", Text, primary_key=True),
    Column("revision", BigInteger),
    Column("detail", JSONB),
)
quarantine = Table(  # what the server refused
    "quarantine",
    metadata,
    Column("node", Text, primary_key=True),
    Column("uid", Text, primary_key=True),
    Column("revision", BigInteger),
    Column("reason", Text),
    Column("event", LargeBinary),  # its first bytes
)
