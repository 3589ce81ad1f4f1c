"""Apache Parquet and Arrow files, by pyarrow of the extra `ckptprof[parquet]`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import IO, Any

from ckptprof.encoding import encodable
from ckptprof.errors import CkptprofError
from ckptprof.store.records import RecordField

_ROWS = 10_000  # per row group


def write(
    kind: str, file: IO[bytes], fields: Sequence[RecordField], rows: Iterable[Any], metadata: Mapping[str, str]
) -> int:
    """Write `parquet` or `arrow` (its file format), and return the number of rows; raises CkptprofError, OSError.

    Times are UTC timestamps in nanoseconds, durations are durations, null means not observed.
    """
    arrow, ipc, parquet = _libraries()
    of = {
        "text": arrow.string(), "json": arrow.string(), "whole": arrow.int64(), "real": arrow.float64(),
        "truth": arrow.bool_(), "time_ns": arrow.timestamp("ns", tz="UTC"), "duration_ns": arrow.duration("ns"),
    }  # fmt: skip
    schema = arrow.schema([(field.name, of[field.value_kind]) for field in fields], metadata=dict(metadata))
    if kind == "parquet":
        opened = parquet.ParquetWriter(file, schema, compression="zstd")
    else:
        opened = ipc.new_file(file, schema)
    written = 0
    with opened as writer:
        left = iter(rows)
        while group := list(islice(left, _ROWS)):
            columns = []
            for place, field in enumerate(fields):
                values = (row[place] for row in group)
                plain = [encodable(value) if isinstance(value, str) else value for value in values]
                columns.append(arrow.array(plain, type=of[field.value_kind]))
            writer.write_batch(arrow.record_batch(columns, schema=schema))
            written += len(group)
    return written


def _libraries() -> tuple[Any, Any, Any]:
    try:
        import pyarrow as pa  # noqa: PLC0415 # 170 MB that only this needs
        from pyarrow import ipc, parquet  # noqa: PLC0415 # likewise
    except ImportError:
        raise CkptprofError("pyarrow is not installed", hint="pip install 'ckptprof[parquet]'") from None
    return pa, ipc, parquet
