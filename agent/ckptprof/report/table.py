"""A table for terminals in about a hundred lines.

rich is not used here: importing it costs 160 ms of the 0.5 s that `report` may take from a cold start, it reads square
brackets in file names as markup (a name that holds "[/red]" is an error) and passes escape codes through. What a report
needs is less: measure cells, give the space to the columns that can use it, and leave out the least important ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ckptprof.report.clean import pad, shorten, take, width
from ckptprof.report.hints import typed

GAP = "  "
MAX_WORD_LINES = 4
_BESIDE_KEYS = 20  # cells that texts beside keys need
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:ms|s|min|h|d|B|[KMGTPE]iB|[kMGTPE]?B(?:/s)?|%)(?!\w))")
_CLOCK_PART = re.compile(r"(\d\xa0(?:min|h|d)) (?=\d\d\xa0)")
_STYLES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column; `text` gives its cells, already cleaned."""

    title: str
    right: bool = False
    drop: int = 0  # the column with the highest goes first where space is short; 0 stays
    returns: bool = False  # into the room that a wider one left, which went after it
    minimum: int | None = None  # cells it can be cut to; None: never cut
    cut: Callable[[str, int], str] = shorten


@dataclass(frozen=True, slots=True)
class Cell:
    """Cleaned text and the name of its style."""

    text: str
    style: str = ""


NOTHING = "-"  # for what was not seen
MISSING = Cell(NOTHING)  # told by `is` from a name that reads alike


def paint(text: str, style: str, *, colour: bool) -> str:
    """Return the text in a style (space-separated names), as it is if there is to be no colour."""
    if not colour or not style:
        return text
    codes = ";".join(_STYLES[name] for name in style.split())
    return f"\x1b[{codes}m{text}\x1b[0m"


def lay_out(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], limit: int) -> dict[int, int]:
    """Return the cells given to each column that is shown, by its index."""
    natural = [max(width(column.title), *(width(row[i].text) for row in rows)) for i, column in enumerate(columns)]
    least = [
        cells if column.minimum is None else min(cells, max(column.minimum, width(column.title)))
        for column, cells in zip(columns, natural, strict=True)
    ]
    shown = _fitting(columns, least, limit)
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


def _fitting(columns: Sequence[Column], least: Sequence[int], limit: int) -> list[int]:
    """Return the columns that there is room for: the least important ones go."""
    shown, dropped = list(range(len(columns))), list[int]()

    def room(of: Sequence[int]) -> int:
        return limit - sum(least[i] for i in of) - len(GAP) * (len(of) - 1)

    while room(shown) < 0 and (droppable := [i for i in shown if columns[i].drop]):
        dropped.append(max(droppable, key=lambda i: columns[i].drop))
        shown.remove(dropped[-1])
    for i in reversed(dropped):
        if columns[i].returns and room([*shown, i]) >= 0:
            shown.append(i)
    return sorted(shown)


def is_cut(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], limit: int) -> bool:
    """Return whether a cell of the last column is cut if the table is laid out."""
    given = lay_out(columns, rows, limit)
    last = len(columns) - 1
    return any(width(row[last].text) > given.get(last, 0) for row in rows)


def render(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], limit: int, *, colour: bool) -> list[str]:
    """Return the header and the rows as lines of at most `limit` cells."""
    if not rows:
        return []
    given = lay_out(columns, rows, limit)
    header = [Cell(column.title, "bold") for column in columns]
    lines = []
    for row in (header, *rows):
        parts = []
        for i, cells in given.items():
            column, cell = columns[i], row[i]
            text = pad(column.cut(cell.text, cells), cells, right=column.right)
            parts.append((text, cell.style))
        last, style = parts[-1]
        parts[-1] = (last.rstrip(), style)
        lines.append(GAP.join(paint(text, style, colour=colour) for text, style in parts).rstrip())
    return lines


def wrap(text: str, limit: int) -> list[str]:
    """Return cleaned text as lines of at most `limit` cells, broken at spaces but never before a unit.

    Commands that it names are as they are to be typed.

    A word that is longer than a line, as a path is, goes on in the next ones; only one that is longer than
    `MAX_WORD_LINES` of them is cut, in its middle.
    """
    lines: list[str] = []
    glued = _CLOCK_PART.sub("\\1\xa0", _BEFORE_UNIT.sub("\xa0", typed(text).replace("\xa0", " ")))
    for word in glued.split(" "):
        if lines and width(lines[-1]) + 1 + width(word) <= limit:
            lines[-1] += " " + word
        else:
            lines += _pieces(shorten(word, MAX_WORD_LINES * limit), limit)
    return [line.replace("\xa0", " ") for line in lines]


def _pieces(word: str, limit: int) -> list[str]:
    """Return a cleaned word in pieces of at most `limit` cells; of an empty one that one."""
    if not word:
        return [word]
    found = []
    while word:
        piece = take(word, limit) or word[0]
        folder = piece.rfind("/") + 1
        found.append(piece[:folder] if folder > len(piece) // 2 and len(piece) < len(word) else piece)
        word = word[len(found[-1]) :]
    return found


def facts(pairs: Sequence[tuple[str, str]], limit: int, *, colour: bool, indent: str = "", keys: int = 0) -> list[str]:
    """Return "key   text" lines, the texts under each other and wrapped; texts are cleaned already. A key may be empty.

    `keys`: the cells that the keys take at least. Where they leave too little room, the texts stand below them.
    """
    if not pairs:
        return []
    key_cells = max(keys, max(width(key) for key, _ in pairs) + len(GAP))
    room = limit - key_cells - len(indent)
    lines = []
    for key, text in pairs:
        if room < _BESIDE_KEYS:
            lines += [indent + paint(key, "bold", colour=colour)] if key else []
            lines += [f"{indent}  {part}".rstrip() for part in wrap(text, limit - len(indent) - 2)]
            continue
        label = indent + paint(pad(key, key_cells), "bold", colour=colour)
        for part in wrap(text, room):
            lines.append((label + part).rstrip())
            label = indent + " " * key_cells
    return lines
