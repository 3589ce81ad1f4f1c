"""Apache Parquet and Arrow files, by pyarrow of the extra `ckptprof[parquet]`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import IO, Any

from ckptprof.encoding import encodable
from ckptprof.errors import CkptprofError
from ckptprof.store.records import RecordField

_ROWS = 10_000  # per row group


def write(
    kind: str, file: IO[bytes], fields: Sequence[RecordField], rows: Iterable[Any], metadata: Mapping[str, str]
) -> None:
    """Write `parquet` or `arrow` (its file format); raises CkptprofError, OSError.

    Times are UTC timestamps, durations of tables are durations, null means not observed.
    """
    arrow, ipc, parquet = _libraries()
    schema = _schema(arrow, fields, metadata)
    is_parquet = kind == "parquet"
    opened = parquet.ParquetWriter(file, schema, compression="zstd") if is_parquet else ipc.new_file(file, schema)
    with opened as writer:
        for batch in _batches(arrow, schema, rows):
            writer.write_batch(batch)


def table(fields: Sequence[RecordField], rows: Iterable[Any], metadata: Mapping[str, str]) -> Any:
    """Return a `pyarrow.Table`, as `write` writes it; raises CkptprofError."""
    arrow, *_ = _libraries()
    schema = _schema(arrow, fields, metadata)
    return arrow.Table.from_batches(_batches(arrow, schema, rows), schema)


def _schema(arrow: Any, fields: Sequence[RecordField], metadata: Mapping[str, str]) -> Any:
    of = {
        "text": arrow.string(), "json": arrow.string(), "whole": arrow.int64(), "real": arrow.float64(),
        "truth": arrow.bool_(), "time": arrow.timestamp("us", tz="UTC"), "time_ns": arrow.timestamp("ns", tz="UTC"),
        "duration_ns": arrow.duration("ns"),
    }  # fmt: skip
    return arrow.schema([(field.name, of[field.value_kind]) for field in fields], metadata=dict(metadata))


def _batches(arrow: Any, schema: Any, rows: Iterable[Any]) -> Iterator[Any]:
    left = iter(rows)
    while group := list(islice(left, _ROWS)):
        columns = []
        for values, field in zip(zip(*group, strict=True), schema, strict=True):
            plain = [encodable(value) if isinstance(value, str) else value for value in values]
            columns.append(arrow.array(plain, type=field.type))
        yield arrow.record_batch(columns, schema=schema)


def _libraries() -> tuple[Any, Any, Any]:
    try:
        import pyarrow as pa  # noqa: PLC0415 # 170 MB that only this needs
        from pyarrow import ipc, parquet  # noqa: PLC0415 # likewise
    except ImportError:
        raise CkptprofError("pyarrow is not installed", hint="pip install 'ckptprof[parquet]'") from None
    return pa, ipc, parquet
