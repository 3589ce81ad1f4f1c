"""Recorded checkpoints in Python: `ckptprof.open()` gives a `Database`, whose views are lists of typed rows."""

from __future__ import annotations

import html
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from ckptprof.encoding import encodable
from ckptprof.errors import StoreError
from ckptprof.export.files import columnar
from ckptprof.model import CheckpointQuery, Kind
from ckptprof.store.location import path_to_read
from ckptprof.store.reader import StoreReader

if TYPE_CHECKING:
    from ckptprof.store.records import RecordField

RowT = TypeVar("RowT", bound=msgspec.Struct)
_SHOWN_ROWS = 20


class CheckpointRow(msgspec.Struct, frozen=True):
    """A row of `v_checkpoints`: times in UTC, lengths in seconds; None means not observed."""

    id: int
    kind: str
    status: str
    job: str
    framework: str | None
    step: int | None
    ranks: int | None
    start_time: datetime
    end_time: datetime
    committed_time: datetime | None
    durable_time: datetime | None
    duration_seconds: float
    at_risk_seconds: float | None  # complete, but not yet on stable storage
    bytes: int
    bytes_per_second: float
    files: int
    path: str | None
    mode: str | None
    stall_seconds: float | None  # training was blocked
    written_bytes: int | None
    unique_bytes: int | None
    write_amplification: float | None
    storage_bytes: int | None
    cache: str | None
    pattern_class: str | None
    level: str
    confidence: float
    limited_by: str | None
    limit_seconds: float | None
    limit_confidence: float | None
    expected_seconds: float | None  # without the limit
    gpu_seconds: float | None


class View(list[RowT]):
    """The rows of a view, a table in a notebook."""

    def __init__(self, fields: Sequence[RecordField], rows: list[RowT]) -> None:
        super().__init__(rows)
        self._fields = fields

    def to_arrow(self) -> Any:
        """Return a `pyarrow.Table`; raises CkptprofError without the extra `ckptprof[parquet]`."""
        return columnar.table(self._fields, map(msgspec.structs.astuple, self), {})

    def to_pandas(self) -> Any:
        """Return a `pandas.DataFrame`; raises CkptprofError as above, ImportError without pandas."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """Return a `polars.DataFrame`; raises CkptprofError as above, ImportError without polars."""
        import polars as pl  # noqa: PLC0415 # no extra of ours

        return pl.from_arrow(self.to_arrow())

    def _repr_html_(self) -> str:
        """Return the first rows as a table, without columns that are empty."""
        shown = [msgspec.structs.asdict(row) for row in self[:_SHOWN_ROWS]]
        names = [field.name for field in self._fields if any(row[field.name] is not None for row in shown)]
        lines = [[f"<td>{html.escape(_cell(row[name]))}</td>" for name in names] for row in shown]
        body = "".join(f"<tr>{''.join(line)}</tr>" for line in ([f"<th>{name}</th>" for name in names], *lines))
        return f"<table>{body}</table><p>{len(self):,} rows</p>"


def _cell(value: Any) -> str:
    return "" if value is None else encodable(str(round(value, 3) if isinstance(value, float) else value))


class Database:
    """Recorded checkpoints, read-only, by the names of `ckptprof sql`; each call reads the present state.

    All methods raise StoreError.
    """

    def __init__(  # noqa: PLR0913 # the options of `ckptprof report`
        self,
        path: str | Path | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        job: str | None = None,
        kind: Literal["save", "restore", "copy"] | None = None,
        limit: int | None = None,
    ) -> None:
        """Open a database and select checkpoints as `ckptprof report` does, which also has the default of `path`."""
        self._path = path_to_read() if path is None else path
        since_ns, until_ns = (None if one is None else int(one.timestamp() * 1e9) for one in (since, until))
        chosen = None if kind is None else Kind(kind)
        self._query = CheckpointQuery(since_ns=since_ns, until_ns=until_ns, job=job, kind=chosen, limit=limit)
        StoreReader(self._path).close()

    def checkpoints(self) -> View[CheckpointRow]:
        """Return `v_checkpoints`, oldest first."""
        return self._read("v_checkpoints", CheckpointRow)

    def table(self, name: str) -> View[Any]:
        """Return another view, or a raw table, by its name as of `ckptprof export --table`; raises UsageError."""
        return self._read(name)

    def _read(self, name: str, row: type[Any] | None = None) -> View[Any]:
        with StoreReader(self._path) as reader, reader.records(name, self._query) as found:
            names = [field.name for field in found.fields]
            made = row or msgspec.defstruct(name, names, frozen=True)
            if list(made.__struct_fields__) != names:
                raise StoreError(f"{reader.path} is damaged: its view {name} has other columns")
            return View(found.fields, [made(*values) for values in found.rows])
