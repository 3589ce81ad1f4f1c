"""CSV and JSON Lines: what other programs read out of them is what was recorded."""

from __future__ import annotations

import csv
import io
import json

import pytest

from ckptprof.export.files import text_files
from ckptprof.store.records import RecordField

FIELDS = (
    RecordField("id", "whole"),
    RecordField("path", "text"),
    RecordField("cost", "json"),
    RecordField("share", "real"),
)


def test_csv_is_read_back_by_the_standard_library() -> None:
    """Quotes, line ends and commas within a name do not end it; numbers keep all digits."""
    rows = [(1, 'a "b",\nc', '{"x":1}', 0.1 + 0.2), (-(2**63), "", None, None)]
    text = b"".join(text_files.csv(FIELDS, rows)).decode()

    read = list(csv.reader(io.StringIO(text, newline="")))
    assert read[0] == ["id", "path", "cost", "share"]
    assert read[1] == ["1", 'a "b",\nc', '{"x":1}', repr(0.1 + 0.2)]
    assert read[2] == [str(-(2**63)), "", "", ""]


def test_nothing_is_told_from_empty() -> None:
    """What was not seen is an empty field, an empty name an empty text."""
    assert text_files.csv_line([None, "", 0, False]) == b',"",0,0\r\n'


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "=cmd|' /C calc'!A0"])
def test_a_spreadsheet_runs_nothing(text: str) -> None:
    """A name that would be a formula is text; a negative number stays one."""
    assert text_files.csv_line([text]).decode().startswith("\"'")
    assert text_files.csv_line([-1, -0.5]) == b"-1,-0.5\r\n"


def test_json_lines_hold_what_was_recorded() -> None:
    """JSON of the database is a part of the object; what is none, and a path that is no UTF-8, is text."""
    rows = [(1, "/a", '{"x": [1, null]}', 0.5), (2, "/\udcff", "{", None)]
    lines = b"".join(text_files.json_lines(FIELDS, rows)).decode().splitlines()

    assert json.loads(lines[0]) == {"id": 1, "path": "/a", "cost": {"x": [1, None]}, "share": 0.5}
    assert json.loads(lines[1]) == {"id": 2, "path": "/\\udcff", "cost": "{", "share": None}
