"""CSV and JSON Lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from ckptprof.encoding import encodable
from ckptprof.store.records import RecordField

# A cell that starts so is a formula in spreadsheets (OWASP, "CSV injection")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
_pack = msgspec.json.Encoder().encode


def csv(fields: Sequence[RecordField], rows: Iterable[Sequence[Any]]) -> Iterator[bytes]:
    """Yield a header line and a line for each row."""
    yield csv_line([field.name for field in fields])
    yield from map(csv_line, rows)


def csv_line(values: Iterable[Any]) -> bytes:
    """Return a line as of RFC 4180: text always quoted, numbers and times never, None as an empty field.

    The csv module cannot distinguish None from an empty text before Python 3.12.
    """
    return (",".join(map(_cell, values)) + "\r\n").encode()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, (int, float)):
        return repr(+value)  # +True is 1
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S.%f}"[:-3]  # spreadsheets know no zone
    text = value.hex() if isinstance(value, bytes) else encodable(str(value))
    return '"' + ("'" + text if text.startswith(_FORMULA) else text).replace('"', '""') + '"'


def json_lines(fields: Sequence[RecordField], rows: Iterable[Sequence[Any]]) -> Iterator[bytes]:
    """Yield an object for each row; JSON columns are nested objects."""
    for row in rows:
        yield _pack({field.name: _value(field, value) for field, value in zip(fields, row, strict=True)}) + b"\n"


def _value(field: RecordField, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if field.value_kind == "json":
        try:
            return msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeEncodeError):  # of a database changed by another program
            return encodable(value)
    return encodable(value)
