"""The tables, and each statement of a recorder: in SQLAlchemy, and compiled to text for processes without it.

This module and `compiled` do not import SQLAlchemy; `schema` and `statements` do.
"""

PLAIN_COLUMNS = (
    "uid", "kind", "job", "framework", "step", "ranks", "start_ns", "end_ns", "durable_ns", "bytes", "files", "path",
    "mode", "stall_ns", "level", "confidence", "status", "written_bytes", "unique_bytes", "storage_bytes", "cache",
    "owner",
)  # fmt: skip
JSON_COLUMNS = ("limitations", "pattern", "moments", "metadata", "overheads", "blocked")
BRIEF_DIAGNOSIS_COLUMNS = ("sent", "run", "place", "clock", "verdict", "cost")  # JSON or NULL
DIAGNOSIS_COLUMNS = (*BRIEF_DIAGNOSIS_COLUMNS, "measures")
CHILD_TABLES = ("writers", "evidence", "streams", "devices")  # tables
BRIEF_CHILD_TABLES = ("writers", "evidence")  # what `report` shows
BLOCK_TABLES = ("minutes", "hours", "rollups")  # tables of one form
ENTITY_BITS = 32  # of the id of a block
