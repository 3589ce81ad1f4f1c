"""The tables, and each statement that a recorder runs: said with SQLAlchemy, and compiled for who does not load it.

What is here is light, as `compiled` is; `schema`, `statements` and `queries` bring SQLAlchemy with them.
"""

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
BLOCKS = ("minutes", "hours", "rollups")  # tables of one form
ENTITY_BITS = 32  # of the id of a block
