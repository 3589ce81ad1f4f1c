"""When stored saves were deleted: each by its largest file, or by the folder that this file is in."""

from __future__ import annotations

from collections.abc import Mapping
from sqlite3 import Connection

MAX_SAVES = 1000  # the newest
_LARGEST_FILES = """
    SELECT c.id, c.path, c.end_ns, s.path, max(s.bytes)
    FROM checkpoints AS c JOIN streams AS s ON s.checkpoint_id = c.id
    WHERE c.id IN (SELECT id FROM checkpoints WHERE kind = 'save' ORDER BY id DESC LIMIT ?)
        AND (s.path = c.path OR instr(s.path, c.path || '/') = 1)
    GROUP BY c.id ORDER BY c.end_ns
"""
_SET = """
    UPDATE checkpoints SET moments = json_set(moments, '$.deleted_ns', ?)
    WHERE id = ? AND json_extract(moments, '$.deleted_ns') IS NULL
"""


def deletion_ns(largest: str, path: str, end_ns: int, deleted: Mapping[str, int]) -> int | None:
    """Return when a save at a path was deleted after its end: its largest file, the folder of it, or all of the path.

    `deleted`: path to epoch nanoseconds.
    """
    times = (deleted.get(one, 0) for one in (largest, largest.rpartition("/")[0], path))
    return min((at_ns for at_ns in times if at_ns >= end_ns), default=None)


def put_deletions(connection: Connection, deleted: Mapping[str, int]) -> None:
    """Record the deletion of the newest save of each file that was deleted."""
    last_ns = max(deleted.values(), default=0)
    newest = {row[3]: row for row in connection.execute(_LARGEST_FILES, (MAX_SAVES,)) if row[2] <= last_ns}
    found = ((deletion_ns(file, path, end_ns, deleted), key) for key, path, end_ns, file, _ in newest.values())
    connection.executemany(_SET, [row for row in found if row[0] is not None])
