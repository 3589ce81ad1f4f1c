"""The names of tables and columns, for who does not load SQLAlchemy to ask `schema`."""

from __future__ import annotations

PLAIN = (
    "uid", "kind", "job", "framework", "step", "ranks", "start_ns", "end_ns", "durable_ns", "bytes", "files", "path",
    "mode", "stall_ns", "level", "confidence", "status", "written_bytes", "unique_bytes", "storage_bytes", "cache",
    "owner",
)  # fmt: skip
JSON = ("blind", "pattern", "moments", "metadata", "overheads", "blocked")
BRIEF_DIAGNOSIS = ("sent", "run", "place", "clock", "verdict", "cost")  # JSON or NULL
DIAGNOSIS = (*BRIEF_DIAGNOSIS, "measures")
CHILDREN = ("writers", "evidence", "streams", "devices")  # tables
BRIEF_CHILDREN = ("writers", "evidence")  # what `report` shows
BLOCKS = ("minutes", "hours", "rollups")  # tables
TABLES = (*CHILDREN, *BLOCKS, "checkpoints", "entities", "layouts", "outbox", "sessions", "untold")
ENTITY_BITS = 32  # of the id of a block
