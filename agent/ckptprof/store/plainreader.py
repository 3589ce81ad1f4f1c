"""What a recorder asks of a database: read-only, and without SQLAlchemy, as `sql.compiled` says it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from sqlite3 import Connection
from typing import TYPE_CHECKING

from ckptprof.model import Checkpoint
from ckptprof.store.asking import Bounds
from ckptprof.store.connection import log_bytes, snapshot
from ckptprof.store.location import to_path
from ckptprof.store.opening import opened
from ckptprof.store.problems import translated
from ckptprof.store.published import number
from ckptprof.store.rows import checkpoint_of, get_pending
from ckptprof.store.sql import compiled

if TYPE_CHECKING:
    from typing_extensions import Self


class PlainReader:
    """Opens a database that exists; every method raises StoreError with one clear line."""

    def __init__(self, url_or_path: str | Path) -> None:
        """Open it; raises StoreError if it is missing, empty, of another program, newer or damaged."""
        self.path = to_path(url_or_path)
        self._open()

    def _open(self) -> None:
        self._raw, self._number = opened(self.path)
        self._bounds = Bounds(self._raw, self.path.stat().st_size + log_bytes(self.path))

    def renew(self) -> None:
        """Open it again if this is a copy and there is a newer one; raises as opening does."""
        if self._number not in (None, number(self.path)):
            self.close()
            self._open()

    def close(self) -> None:
        """Close it; a second call does nothing."""
        self._raw.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def recent_paths(self, limit: int) -> list[str]:
        """Return the paths of the newest checkpoints, each once, newest first: where a restore may begin."""
        with self._snapshot() as raw:
            paths = raw.execute(compiled.PATHS, {"most": max(limit, 0)})
            return [path for (path,) in paths if isinstance(path, str)]

    def pending(self) -> dict[str, bytes]:
        """Return what the agent had not told when it ended, as it was put there, by uid."""
        with self._snapshot() as raw:
            return get_pending(raw)

    def cut_saves(self, since_ns: int, until_ns: int) -> list[Checkpoint]:
        """Return the saves of a time in whose midst the watch ended, with all that is known of them, oldest first."""
        with self._snapshot() as raw:
            rows = raw.execute(compiled.CUT, {"since_ns": since_ns, "until_ns": until_ns})
            return [checkpoint_of(*row) for row in rows]

    @contextmanager
    def _snapshot(self) -> Iterator[Connection]:
        with translated(self.path), snapshot(self._raw) as raw:
            self._bounds.begin()
            yield raw
