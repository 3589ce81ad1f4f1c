"""The commands that a text names ask the database that the reader asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckptprof.cli.main import main
from ckptprof.report import hints
from ckptprof.report.table import wrap


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("`ckptprof show ID` tells", "`ckptprof show ID --db 'a b.db'` tells"),
        ("`ckptprof plan --job 'x y'`", "`ckptprof plan --job 'x y' --db 'a b.db'`"),
        ("`ckptprof run -- CMD`", "`ckptprof run --db 'a b.db' -- CMD`"),
        ("`ckptprof report` or `ckptprof list`", "`ckptprof report --db 'a b.db'` or `ckptprof list --db 'a b.db'`"),
        ("`ckptprof show 1 --db PATH`", "`ckptprof show 1 --db PATH`"),
        ("`ckptprof doctor --all`, ckptprof show", "`ckptprof doctor --all --db 'a b.db'`, ckptprof show"),
        ("`ckptprof show --help` lists the options", "`ckptprof show --help` lists the options"),
        ("`ckptprof agent` as root", "`ckptprof agent --db 'a b.db'` as root"),
        ("`ckptprof service install` as root", "`ckptprof service install` as root"),
    ],
)
def test_a_command_names_the_database_that_was_named(text: str, typed: str) -> None:
    """Where the command takes it; only a command, and only once."""
    assert hints.with_databases(text) == text
    hints.set_databases("a b.db")

    assert hints.with_databases(text) == typed
    assert " ".join(wrap(text, 1000)) == typed


def test_a_hostile_name_is_inert() -> None:
    """It is escaped like every name."""
    hints.set_databases("a\x1b[2J.db")

    assert "\x1b" not in hints.with_databases("`ckptprof show ID`")


def test_a_command_line_leaves_nothing_behind(tmp_path: Path) -> None:
    """What is rendered after it in the same process asks no database of its."""
    assert main(["show", "1", "--db", str(tmp_path / "none.db")]) == 6

    assert hints.with_databases("`ckptprof show ID`") == "`ckptprof show ID`"
