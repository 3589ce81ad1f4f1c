"""`report --restarts` of a database with the timelines of two lives of a job."""

from __future__ import annotations

import json
import re
from array import array
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from tests.cli.recorded import BEGIN_NS, SECOND, recorded, save
from tests.report.schemas import validate

from ckptprof.cli.main import main
from ckptprof.model import Kind, Writer
from ckptprof.store.timeline import WINDOW_NS, Window
from ckptprof.store.writer import StoreWriter


@pytest.fixture
def db(tmp_path: Path) -> str:
    """Return the saves 0, 1 and 2 of pids 7 and 8; killed at 24 s, pids 17 and 18 run from 40 s, and restore save 1."""
    path = Path(recorded(tmp_path / "ckptprof.db"))
    writers = tuple(Writer(pid=17 + rank, comm="python", bytes=1 << 27, rank=rank) for rank in range(2))
    again = msgspec.structs.replace(save(1), uid="again", kind=Kind.RESTORE, writers=writers, job="train")
    later = msgspec.structs.replace(save(7), writers=writers, blocked=())
    with closing(StoreWriter(path)) as writer:
        writer.add_checkpoints(
            [msgspec.structs.replace(again, start_ns=BEGIN_NS + 45 * SECOND, end_ns=BEGIN_NS + 47 * SECOND), later]
        )
        for pid, first, last in ((7, 0, 24), (8, 0, 26), (17, 40, 72), (18, 41, 72)):
            times = array("q", (BEGIN_NS + second * SECOND for second in range(first, last + 1)))
            start_ns = BEGIN_NS // WINDOW_NS * WINDOW_NS
            writer.add_windows([Window(f"process:{pid}:1", start_ns, ("user_ticks",), times, ([*range(len(times))],))])
    return str(path)


def test_what_a_restart_cost(db: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The save it went on from, each phase, and all of it as a document."""
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["report", "--restarts", "--db", db]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert main(["report", "--restarts", "--json", "--db", db]) == 0
    body = json.loads(capsys.readouterr().out)

    assert lines[0] == "What restarts cost train"
    assert lines[1].split(maxsplit=1) == ["Restarts", "1 in 1 min 13 s, planned ones included"]
    assert lines[2].split(maxsplit=1) == ["Lost", "8.00 s of training redone, 23.0 s without training"]
    titles = ("ENDED", "REDONE", "DOWN", "WAITING", "START-UP", "RESTORE", "WARM-UP", "FROM SAVE", "STEP")
    assert re.split("  +", lines[5]) == [*titles]
    assert re.split("  +", lines[6])[1:] == ["8.00 s", "23.0 s", "16.0 s", "5.00 s", "2.00 s", "0 s", "2", "1"]
    validate("restarts", body)
    (one,) = body["jobs"][0]["restarts"]
    assert [one[name] for name in ("waiting_seconds", "starting_seconds", "restoring_seconds")] == [16.0, 5.0, 2.0]


def test_a_plan_does_not_take_the_time_of_one_restart(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One says little of the next one's queue; test_plan_field.py has two."""
    assert main(["plan", "--mttf", "1d", "--json", "--db", db]) in (0, 3)

    figure = json.loads(capsys.readouterr().out)["basis"]["restart_seconds"]
    assert (figure["value"], figure["origin"]) == (300.0, "assumed")


@pytest.mark.parametrize(
    ("options", "code", "line"),
    [
        (["--job", "other"], 3, "no restart among 0 checkpoints"),
        (["--html"], 2, "--restarts excludes --html"),
        (["--fail-on", "saves>0"], 2, "--restarts excludes --html, --fail-on"),
        (["--db", "{db}2"], 2, "--restarts covers one node only"),
    ],
)
def test_what_is_refused(options: list[str], code: int, line: str, db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In one line, with a hint."""
    assert main(["report", "--restarts", "--db", db, *(one.format(db=db) for one in options)]) == code
    assert line in capsys.readouterr().err
