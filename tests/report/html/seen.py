"""What stands on a page, read back out of its text."""

from __future__ import annotations

from html.parser import HTMLParser

from ckptprof.report.html.axis import WIDTH, Axis

SECOND = 1_000_000_000


def times(axis: Axis, x: float, width: float) -> tuple[float, float]:
    """Return the seconds since the axis' begin that a bar stands for."""
    whole = (axis.end_ns - axis.start_ns) / SECOND
    return x / WIDTH * whole, (x + width) / WIDTH * whole


class Seen(HTMLParser):
    """The elements of a page, and what stands in some of them."""

    def __init__(self, text: str) -> None:
        """Read it all."""
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self.heads: list[str] = []
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take note of one."""
        self.elements.append((tag, dict(attrs)))
        self._open = tag

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002 # the interface's
        """Be outside of it."""
        self._open = ""

    def handle_data(self, data: str) -> None:
        """Take note of the text."""
        self.texts[self._open] = self.texts.get(self._open, "") + data
        if len(self.elements) > 1 and self.elements[-2][0] == "th" and self._open == "button":
            self.heads.append(data)

    def bars(self, style: str) -> list[tuple[int, float, float]]:
        """Return (checkpoint, x, width) of the bars of the timeline of a class."""
        found = [(tag, told) for tag, told in self.elements if tag == "rect" and "data-id" in told]
        return [
            (int(told["data-id"] or 0), float(told["x"] or 0), float(told["width"] or 0))
            for _, told in found
            if style in (told["class"] or "").split()
        ]

    def drawn(self, label: str) -> list[dict[str, str | None]]:
        """Return the rectangles of the drawing that is called so."""
        found: list[dict[str, str | None]] = []
        inside = False
        for tag, told in self.elements:
            if tag == "svg":
                inside = (told.get("aria-label") or "").startswith(label)
            elif tag == "rect" and inside:
                found.append(told)
        return found

    def keys(self) -> dict[int, dict[str, str]]:
        """Return by what each row of the table of checkpoints is sorted, by the heading of the column."""
        rows: dict[int, list[str]] = {}
        row: list[str] = []
        for tag, told in self.elements:
            if tag == "tbody":
                row = rows.setdefault(int((told.get("id") or "row--1").removeprefix("row-")), [])
            elif tag == "td" and "data-key" in told:
                row.append(told["data-key"] or "")
        return {number: dict(zip(self.heads, keys, strict=True)) for number, keys in rows.items()}
