"""The result of an SQL query, as a table and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ckptprof.encoding import encodable
from ckptprof.errors import UsageError
from ckptprof.report.clean import clean
from ckptprof.report.table import Cell, facts
from ckptprof.report.table import render as lay

_LEAST_CELLS = 4  # of a column of text that has to be cut


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, width: int, colour: bool) -> list[str]:
    """Return the rows as lines of at most `width` cells; numbers are right-aligned, NULL is `-`."""
    right = [all(row[i] is None or isinstance(row[i], (int, float)) for row in rows) for i in range(len(columns))]
    titles = [clean(name) or " " for name in columns]
    cells = [
        [
            Cell(title, _text(value), right=numbers, minimum=None if numbers else _LEAST_CELLS)
            for title, value, numbers in zip(titles, row, right, strict=True)
        ]
        for row in rows
    ]
    return lay(cells, width, colour=colour)


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return f"x'{value.hex()}'" if isinstance(value, bytes) else clean(encodable(str(value)))


def document(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, is_truncated: bool) -> dict[str, Any]:
    """Return the document of `sql --json`: each row an object of its columns, bytes in hexadecimal.

    Raises UsageError if two columns have the same name.
    """
    twice = [name for name, times in Counter(columns).items() if times > 1]
    if twice:
        raise UsageError(f"two columns are called {twice[0]!r}", hint="name one of them: SELECT x AS y")
    return {
        "columns": list(columns),
        "rows": [
            {name: value.hex() if isinstance(value, bytes) else value for name, value in zip(columns, row, strict=True)}
            for row in rows
        ],
        "is_truncated": is_truncated,
    }


def schema(columns: Mapping[str, Sequence[str]], *, width: int, colour: bool) -> list[str]:
    """List each table with its columns."""
    pairs = [(clean(name), ", ".join(map(clean, names))) for name, names in columns.items()]
    return facts(pairs, width, colour=colour)
