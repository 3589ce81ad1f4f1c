"""`ckptprof.open()`: what a notebook gets is what `ckptprof sql` shows, as structs and in Arrow, pandas and polars."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from tests.cli.recorded import BEGIN_NS, HOSTILE, SECOND, recorded

import ckptprof
from ckptprof.errors import StoreError, UsageError
from ckptprof.export.database import CheckpointRow, Database

BEGIN = datetime.fromtimestamp(BEGIN_NS // SECOND, timezone.utc)


@pytest.fixture
def db(tmp_path: Path) -> Database:
    """Return a database of three saves."""
    return ckptprof.open(recorded(tmp_path / "ckptprof.db"))


def test_checkpoints_are_rows_with_types(db: Database) -> None:
    """Oldest first; what was not observed is None."""
    found = db.checkpoints()

    assert [one.step for one in found] == [0, 1, 2]
    assert found[0].durable_time == BEGIN + timedelta(seconds=5)
    assert (found[2].durable_time, found[2].path, found[2].stall_seconds) == (None, HOSTILE, 3.0)


def test_the_types_are_those_of_the_view(db: Database) -> None:
    """Each column of `v_checkpoints` is a field of its struct, in its order, of the type that Arrow has for it."""
    arrow = {int: "int64", float: "double", str: "string", datetime: "timestamp[us, tz=UTC]"}
    hints = get_type_hints(CheckpointRow)

    assert [(one.name, str(one.type)) for one in db.checkpoints().to_arrow().schema] == [
        (name, arrow[(get_args(hint) or (hint,))[0]]) for name, hint in hints.items()
    ]


@pytest.mark.parametrize(
    ("selection", "steps"),
    [
        ({"limit": 1}, [2]),
        ({"since": BEGIN + timedelta(seconds=4)}, [1, 2]),
        ({"until": BEGIN + timedelta(seconds=4)}, [0]),
        ({"job": "tr*"}, [0, 1, 2]),
        ({"job": "other"}, []),
        ({"kind": "restore"}, []),
    ],
)
def test_a_selection_is_that_of_report(db: Database, selection: dict[str, object], steps: list[int]) -> None:
    """It holds for the ranks as well; a view without rows has all columns."""
    chosen = ckptprof.open(db._path, **selection)  # type: ignore[arg-type]

    assert [one.step for one in chosen.checkpoints()] == steps
    assert len(chosen.table("v_ranks")) == 2 * len(steps)
    assert chosen.checkpoints().to_arrow().column_names == db.checkpoints().to_arrow().column_names


def test_each_call_reads_what_is_recorded_by_then(db: Database) -> None:
    """A notebook is open for hours while a job saves."""
    before = db.checkpoints()
    with sqlite3.connect(db._path) as raw:
        raw.execute("DELETE FROM checkpoints WHERE step = 0")

    assert (len(before), len(db.checkpoints())) == (3, 2)


def test_other_tables_are_those_of_export(db: Database) -> None:
    """Views and raw tables by their names; a name of none of them is refused with a list."""
    assert [(one.rank, one.start_time) for one in db.table("v_ranks")][:2] == [
        (0, BEGIN + timedelta(seconds=1)), (1, BEGIN + timedelta(seconds=1)),
    ]  # fmt: skip
    assert db.table("checkpoints")[0].start_ns == BEGIN_NS
    with pytest.raises(UsageError, match="there is no table 'nope'") as error:
        db.table("nope")
    assert "v_ranks" in (error.value.hint or "")


def test_without_a_path_it_is_that_of_the_commands(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """By CKPTPROF_DB."""
    monkeypatch.setenv("CKPTPROF_DB", str(db._path))
    assert len(ckptprof.open().checkpoints()) == 3


def test_a_missing_database_is_an_error_at_once(tmp_path: Path) -> None:
    """Not when the first view is read."""
    with pytest.raises(StoreError, match="no database at"):
        ckptprof.open(tmp_path / "none.db")


@pytest.mark.parametrize(
    "view", [None, "SELECT 1 AS id, 2 AS start_time, 3 AS x", "SELECT step FROM checkpoints", "SELECT id FROM nowhere"]
)
def test_views_of_another_program_are_damage(view: str | None, db: Database) -> None:
    """They are missing, or have other columns: an error of the store, whatever they hold."""
    with sqlite3.connect(db._path) as raw:
        raw.execute("DROP VIEW v_checkpoints")
        if view is not None:
            raw.execute(f"CREATE VIEW v_checkpoints AS {view}")

    with pytest.raises(StoreError):
        db.checkpoints()


def test_a_notebook_shows_a_table(db: Database) -> None:
    """Names are text, not markup; columns without a value are not shown, and the count is that of all rows."""
    with sqlite3.connect(db._path) as raw:
        raw.execute("UPDATE checkpoints SET job = '<script>alert(1)</script>' WHERE step = 0")
    page = db.checkpoints()._repr_html_()

    assert "<td>&lt;script&gt;alert(1)&lt;/script&gt;</td>" in page
    assert "<script" not in page
    assert "<th>stall_seconds</th>" in page
    assert "gpu_seconds" not in page  # not observed in any
    assert "<td>89478485.333</td>" in page
    assert page.endswith("<p>3 rows</p>")


def test_importing_it_is_free() -> None:
    """The commands import the package, too: they pay for no store, and for no library of tables."""
    code = (
        "import sys, ckptprof; print(sorted({'sqlite3', 'msgspec', 'ckptprof.export', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.frames
def test_pandas_and_polars_hold_the_same(db: Database) -> None:
    """Moments with their zone, numbers as numbers, nothing as nothing."""
    rows = db.checkpoints()
    pandas, polars = rows.to_pandas(), rows.to_polars()

    assert list(pandas.columns) == polars.columns
    assert pandas["start_time"].tolist() == polars["start_time"].to_list() == [one.start_time for one in rows]
    assert (pandas["end_time"] - pandas["start_time"]).dt.total_seconds().tolist() == [3.0, 3.0, 3.0]
    assert polars["durable_time"].null_count() == pandas["durable_time"].isna().sum() == 1
    assert polars["bytes"].sum() == pandas["bytes"].sum() == 3 << 28
