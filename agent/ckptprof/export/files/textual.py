"""Rows as comma-separated values and as JSON Lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from ckptprof.encoding import encodable
from ckptprof.store.records import Field

# A cell that begins so is a formula to a spreadsheet (OWASP, "CSV injection")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
_pack = msgspec.json.Encoder().encode


def csv(fields: Sequence[Field], rows: Iterable[Sequence[Any]]) -> Iterator[bytes]:
    """Return a line of names and a line for each row."""
    yield csv_line([field.name for field in fields])
    yield from map(csv_line, rows)


def csv_line(values: Iterable[Any]) -> bytes:
    """Return one line as of RFC 4180: text always quoted, numbers never, and what was not seen as an empty field.

    The csv module writes None and an empty text alike before Python 3.12.
    """
    return (",".join(map(_cell, values)) + "\r\n").encode()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, (int, float)):
        return repr(value)
    text = value.hex() if isinstance(value, bytes) else encodable(str(value))
    return '"' + ("'" + text if text.startswith(_FORMULA) else text).replace('"', '""') + '"'


def json_lines(fields: Sequence[Field], rows: Iterable[Sequence[Any]]) -> Iterator[bytes]:
    """Return an object for each row; what is JSON in the database is a part of it."""
    for row in rows:
        yield _pack({field.name: _value(field, value) for field, value in zip(fields, row, strict=True)}) + b"\n"


def _value(field: Field, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if field.holds == "json":
        try:
            return msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeEncodeError):  # of a database that is not ours alone
            return encodable(value)
    return encodable(value)
