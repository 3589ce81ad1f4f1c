"""`ckptprof sql`, as it is typed."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from tests.cli.recorded import recorded

from ckptprof.cli.main import main

QUESTION = "SELECT job, limited_by, path FROM v_checkpoints ORDER BY id"


@pytest.fixture
def db(tmp_path: Path) -> str:
    """Return a database of three checkpoints, one of a hostile name."""
    return recorded(tmp_path / "ckptprof.db")


def test_an_answer_is_a_table(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Its names above, names of files made plain, and what was not seen as a dash."""
    assert main(["sql", QUESTION, "--db", db]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["job", "limited_by", "path"]
    assert lines[1].split() == ["train", "-", "/ckpt/step-0"]
    assert "\x1b" not in "".join(lines)
    assert "\\x1b" in lines[3]


def test_csv_and_json_are_read_back(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By the standard library; a NULL is an empty field, and null."""
    assert main(["sql", QUESTION, "--csv", "--db", db]) == 0
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out, newline="")))
    assert main(["sql", QUESTION, "--json", "--db", db]) == 0
    told = json.loads(capsys.readouterr().out)

    assert rows[:2] == [["job", "limited_by", "path"], ["train", "", "/ckpt/step-0"]]
    assert told["columns"] == ["job", "limited_by", "path"]
    assert told["rows"][0] == {"job": "train", "limited_by": None, "path": "/ckpt/step-0"}
    assert told["is_truncated"] is False


def test_without_a_statement_tables_are_listed(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As text and as a document."""
    assert main(["sql", "--db", db]) == 0
    assert capsys.readouterr().out.startswith("v_accounts ")
    assert main(["sql", "--db", db, "--json"]) == 0
    assert "checkpoint_id" in json.loads(capsys.readouterr().out)["tables"]["v_ranks"]


def test_a_statement_is_read_from_standard_input(
    db: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `-` says everywhere."""
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT 7 AS seven\n"))
    assert main(["sql", "-", "--db", db]) == 0
    assert capsys.readouterr().out.split() == ["seven", "7"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["DELETE FROM checkpoints"], "only SELECT is allowed"),
        (["SELECT 1", "--csv", "--json"], "different formats"),
        (["SELECT 1 AS a, 2 AS a", "--json"], "two columns are called 'a'"),
        (["SELECT nope FROM v_ranks"], "no such column: nope"),
        (["SELECT '\udcff'"], "the statement is not UTF-8"),
    ],
)
def test_mistakes_are_told(db: str, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str) -> None:
    """In one line with a hint, and exit code 2."""
    assert main(["sql", *arguments, "--db", db]) == 2
    streams = capsys.readouterr()
    assert told in streams.err
    assert "hint: " in streams.err
    assert streams.out == ""


def test_a_cut_answer_says_so(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """On standard error: the answer itself stays one."""
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c"
    assert main(["sql", endless, "--csv", "--db", db]) == 0
    streams = capsys.readouterr()
    assert streams.err == "only the first 100,000 rows: give a LIMIT, or a WHERE\n"
    assert streams.out.endswith("\r\n100000\r\n")
