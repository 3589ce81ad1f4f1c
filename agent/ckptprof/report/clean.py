"""Names from the machine, made safe to print: this module alone decides which characters reach a terminal.

A file, process or device name may contain escape codes, newlines, direction overrides or invalid text. Printed as they
are, they move the cursor, change the window title or reverse a line. Everything that is printed passes through `clean`.
"""

from __future__ import annotations

import re
import unicodedata

from ckptprof import units

NAMELESS = "(no name)"
ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
# Cc controls, Cf invisible (bidi overrides, joiners, tags), Zl and Zp line ends, Cs surrogates, Co private, Cn none
_UNSAFE = frozenset(("Cc", "Cf", "Zl", "Zp", "Cs", "Co", "Cn"))
_ASCII_SAFE = re.compile(r"[ -~]*\Z")
_HEAD_FROM = 24  # cells below which only the end of a long text is kept
_CODES_PER_CELL = 4  # more code points than this per cell of width are stacked marks, and are cut like long text


def clean(text: str) -> str:
    r"""Return `text` with every character that is not plainly visible written as `\xNN` or `\u{N}`; never fails."""
    if _ASCII_SAFE.match(text):
        return text
    return "".join(_escape(char) if unicodedata.category(char) in _UNSAFE else char for char in text)


def named(job: str) -> str:
    """Return the name of a job for printing, with a text for an empty one."""
    return clean(job).strip() or NAMELESS


def clean_sentence(text: str) -> str:
    """Clean a sentence of a verdict, and convert its sizes to the chosen units."""
    return clean(units.restated(text))


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{{{code:x}}}"


def width(text: str) -> int:
    """Return the number of terminal cells of cleaned text: wide characters take two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(map(_char_width, text))


def _char_width(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def shorten(text: str, limit: int) -> str:
    """Cut cleaned text in the middle to at most `limit` cells; most of what remains is its end.

    The end of a path distinguishes checkpoints, its start the file system.
    """
    if _fits(text, limit):
        return text
    if limit <= 1:
        return ELLIPSIS[:limit]
    head_cells = (limit - 1) // 3 if limit >= _HEAD_FROM else 0
    tail_cells = limit - 1 - head_cells
    return fit_prefix(text, head_cells) + ELLIPSIS + fit_prefix(text[::-1], tail_cells)[::-1]


def shorten_end(text: str, limit: int) -> str:
    """Cut cleaned text at its end to at most `limit` cells."""
    if _fits(text, limit):
        return text
    return fit_prefix(text, limit - 1) + ELLIPSIS if limit > 0 else ""


def _fits(text: str, limit: int) -> bool:
    if text.isascii():
        return len(text) <= limit
    return len(text) <= limit * _CODES_PER_CELL and width(text) <= limit


def fit_prefix(text: str, cells: int) -> str:
    """Return the start of cleaned text that fits into this number of cells."""
    if text.isascii():
        return text[:cells]
    used = 0
    for position, char in enumerate(text):
        used += _char_width(char)
        if used > cells or position >= cells * _CODES_PER_CELL:
            return text[:position]
    return text


def pad(text: str, cells: int, *, right: bool = False) -> str:
    """Fill cleaned text with spaces to `cells` cells, on the left if `right`."""
    space = " " * (cells - width(text))
    return space + text if right else text + space
