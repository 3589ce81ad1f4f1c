"""A table for terminals in about a hundred lines.

rich is not used here: importing it costs 160 ms of the 0.5 s that `report` may take from a cold start, it reads square
brackets in file names as markup (a name with "[/red]" is an error) and passes escape codes through. A report needs
less: measure cells, give the space to the columns that can use it, and drop the least important ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from ckptprof.report.clean import fit_prefix, pad, shorten, width
from ckptprof.report.hints import with_databases

Number = TypeVar("Number", int, float)
GAP = "  "
MAX_WORD_LINES = 4
_MIN_TEXT_CELLS = 20  # minimum cells for texts beside keys
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:ms|s|min|h|d|B|[KMGTPE]iB|[kMGTPE]?B(?:/s)?|%)(?!\w))")
_CLOCK_PART = re.compile(r"(\d\xa0(?:min|h|d)) (?=\d\d\xa0)")
_STYLES = {
    "bold": "1",
    "dim": "2",
    "red": "91",  # bright, as blue is: the dark ones are hard to read on black
    "green": "32",
    "yellow": "33",
    "blue": "94",
    "cyan": "36",
    "orange": "38;5;166",  # these three: the closest to those of the page
    "azure": "38;5;32",
    "violet": "38;5;99",
}
NOTHING = "-"  # for values that were not observed


class Cell(NamedTuple):
    """One cell, with the layout of its column, which the first row decides."""

    title: str
    text: str | None  # cleaned; None: not observed
    style: str = ""
    right: bool = False
    drop: int = 0  # the column with the highest goes first where space is short; 0 stays
    returns: bool = False  # into the space of a wider column that was dropped after it
    minimum: int | None = None  # cells it can be cut to; None: never cut
    cut: Callable[[str, int], str] = shorten
    optional: bool = False  # no column without any value
    key: float | str = ""  # by which a page sorts it; empty: by its text


def number(  # noqa: PLR0913 # as of a cell
    title: str,
    value: Number | None,
    show: Callable[[Number], str],
    style: str = "",
    *,
    drop: int = 0,
    returns: bool = False,
    optional: bool = False,
) -> Cell:
    """Return a right-aligned cell of a measured value, formatted by `show`; None: not observed."""
    text, key = (None, -1) if value is None else (show(value), value)
    return Cell(title, text, style, right=True, drop=drop, returns=returns, optional=optional, key=key)


def paint(text: str, style: str, *, colour: bool) -> str:
    """Return the text in a style (space-separated names), unchanged without `colour`."""
    if not colour or not style:
        return text
    codes = ";".join(_STYLES[name] for name in style.split())
    return f"\x1b[{codes}m{text}\x1b[0m"


def without_empty_columns(rows: Sequence[Sequence[Cell]]) -> list[list[Cell]]:
    """Remove optional columns without any value."""
    if not rows:
        return []
    columns = [i for i, cell in enumerate(rows[0]) if not cell.optional or any(row[i].text is not None for row in rows)]
    return [[row[i] for i in columns] for row in rows]


def lay_out(rows: Sequence[Sequence[Cell]], limit: int) -> dict[int, int]:
    """Return the width in cells of each column that is shown, by its index; needs at least one row."""
    first = rows[0]
    natural = [max(width(cell.title), *(width(row[i].text or NOTHING) for row in rows)) for i, cell in enumerate(first)]
    least = [
        cells if cell.minimum is None else min(cells, max(cell.minimum, width(cell.title)))
        for cell, cells in zip(first, natural, strict=True)
    ]
    shown = _fitting(first, least, limit)
    given = {i: least[i] for i in shown}
    spare = limit - sum(given.values()) - len(GAP) * (len(shown) - 1)
    while spare < 0 and max(given.values()) > 1:
        given[max(given, key=given.__getitem__)] -= 1  # the terminal is narrower than all that is never cut
        spare += 1
    wanting = sorted((i for i in shown if natural[i] > given[i]), key=lambda i: natural[i] - given[i])
    for place, i in enumerate(wanting):  # the smallest wish first, so that what it leaves goes to the greater ones
        extra = max(0, min(natural[i] - given[i], spare // (len(wanting) - place)))
        given[i] += extra
        spare -= extra
    return given


def _fitting(columns: Sequence[Cell], least: Sequence[int], limit: int) -> list[int]:
    shown, dropped = list(range(len(columns))), list[int]()

    def free_cells(of: Sequence[int]) -> int:
        return limit - sum(least[i] for i in of) - len(GAP) * (len(of) - 1)

    while free_cells(shown) < 0 and (droppable := [i for i in shown if columns[i].drop]):
        dropped.append(max(droppable, key=lambda i: columns[i].drop))
        shown.remove(dropped[-1])
    for i in reversed(dropped):
        if columns[i].returns and free_cells([*shown, i]) >= 0:
            shown.append(i)
    return sorted(shown)


def render(rows: Sequence[Sequence[Cell]], limit: int, *, colour: bool) -> list[str]:
    """Return the header and the rows as lines of at most `limit` cells; empty without rows."""
    rows = without_empty_columns(rows)
    if not rows:
        return []
    given = lay_out(rows, limit)
    lines = []
    for row in ([cell._replace(text=cell.title, style="bold") for cell in rows[0]], *rows):
        parts = []
        for i, cells in given.items():
            cell = row[i]
            text = NOTHING if cell.text is None else cell.text
            parts.append(
                (pad(cell.cut(text, cells), cells, right=cell.right), cell.style if cell.text is not None else "")
            )
        last, style = parts[-1]
        parts[-1] = (last.rstrip(), style)
        lines.append(GAP.join(paint(text, style, colour=colour) for text, style in parts).rstrip())
    return lines


def wrap(text: str, limit: int) -> list[str]:
    """Break cleaned text into lines of at most `limit` cells, at spaces but never before a unit.

    Quoted commands are completed with the database.

    A word that is longer than a line, such as a path, continues in the next lines; only one longer than
    `MAX_WORD_LINES` lines is cut, in its middle.
    """
    lines: list[str] = []
    glued = _CLOCK_PART.sub("\\1\xa0", _BEFORE_UNIT.sub("\xa0", with_databases(text).replace("\xa0", " ")))
    for word in glued.split(" "):
        if lines and width(lines[-1]) + 1 + width(word) <= limit:
            lines[-1] += " " + word
        else:
            lines += _pieces(shorten(word, MAX_WORD_LINES * limit), limit)
    return [line.replace("\xa0", " ") for line in lines]


def _pieces(word: str, limit: int) -> list[str]:
    if not word:
        return [word]
    found = []
    while word:
        piece = fit_prefix(word, limit) or word[0]
        folder = piece.rfind("/") + 1
        found.append(piece[:folder] if folder > len(piece) // 2 and len(piece) < len(word) else piece)
        word = word[len(found[-1]) :]
    return found


def facts(pairs: Sequence[tuple[str, str]], limit: int, *, colour: bool, indent: str = "", keys: int = 0) -> list[str]:
    """Return "key   text" lines, with the texts aligned and wrapped; texts are cleaned already. A key may be empty.

    `keys`: minimum cells for the keys. If too few cells remain, the texts are placed below their keys.
    """
    if not pairs:
        return []
    key_cells = max(keys, max(width(key) for key, _ in pairs) + len(GAP))
    cells = limit - key_cells - len(indent)
    lines = []
    for key, text in pairs:
        if cells < _MIN_TEXT_CELLS:
            lines += [indent + paint(key, "bold", colour=colour)] if key else []
            lines += [f"{indent}  {part}".rstrip() for part in wrap(text, limit - len(indent) - 2)]
            continue
        label = indent + paint(pad(key, key_cells), "bold", colour=colour)
        for part in wrap(text, cells):
            lines.append((label + part).rstrip())
            label = indent + " " * key_cells
    return lines
