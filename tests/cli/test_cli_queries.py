"""report, list and show against a real database, end to end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import unicodedata
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from ckptprof.cli.main import main
from ckptprof.model import Checkpoint, Evidence, Kind, Level, Pattern, PatternClass, Point, Session, Stream, Writer
from ckptprof.store.writer import StoreWriter

SECOND = 1_000_000_000
NAMES = (
    "/ckpt/\x1b[2J\x1b]0;PWN\x07.pt",
    "/ckpt/[/red]\n=cmd|'/C calc'.pt",
    "/ckpt/\u202egnp.tp \\xff </script>",
    "/" + "d" * 4096,
)


def _checkpoint(number: int, start_ns: int, path: str) -> Checkpoint:
    end_ns = start_ns + 2 * SECOND
    return Checkpoint(
        uid=f"uid-{number}", kind=Kind.RESTORE if number == 4 else Kind.SAVE,
        job=f"job-{number % 2}", framework="torch.save", step=number, ranks=1,
        start_ns=start_ns, end_ns=end_ns, bytes=1 << 28, files=1, path=path,
        writers=(Writer(pid=7, comm=path[:15], bytes=1 << 28),),
        pattern=Pattern(class_=PatternClass.SEQUENTIAL_LARGE, sequential_share_bytes=1.0), level=Level.POLL,
        blind=("offsets",), evidence=(Evidence(name="format", weight=2.0, text=f"{path} is a zip"),), confidence=0.9,
        streams=(Stream(pid=7, comm="p", path=path, bytes=1 << 28, size=1 << 28, start_ns=start_ns, end_ns=end_ns),),
        timeline=(Point(start_ns, start_ns + SECOND, 1 << 27), Point(start_ns + SECOND, end_ns, 1 << 27)),
    )  # fmt: skip


@pytest.fixture
def db(tmp_path: Path) -> str:
    """Return a database of the last ten minutes with four checkpoints of hostile names, one each two minutes."""
    path = tmp_path / "ckptprof.db"
    now_ns = time.time_ns()
    start_ns = now_ns - 600 * SECOND
    writer = StoreWriter(path, ballast_bytes=0)
    writer.begin_session(
        Session(
            uid="s", host="node-1", boot_id="b", kernel="6.1", version="0", level="poll",
            start_ns=start_ns, end_ns=now_ns,
            clean=True,
        )
    )  # fmt: skip
    found = [_checkpoint(n, start_ns + n * 120 * SECOND, name) for n, name in enumerate(NAMES, start=1)]
    writer.add_checkpoints(found)
    writer.close()
    return str(path)


@pytest.fixture
def empty_db(tmp_path: Path) -> str:
    """Return a database in which nothing was recorded."""
    path = tmp_path / "empty.db"
    StoreWriter(path, ballast_bytes=0).close()
    return str(path)


def _inert(text: str) -> bool:
    return not {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp", "Cs")} - {"\n", "\t"}


@pytest.mark.parametrize("columns", ["80", "200"])
def test_report(columns: str, db: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole answer on stdout, nothing on stderr, nothing raw."""
    monkeypatch.setenv("COLUMNS", columns)
    code = main(["report", "--db", db])
    out, err = capsys.readouterr()

    assert (code, err) == (0, "")
    assert out.startswith("Watched   10 min 00 s on node-1, ")
    assert _inert(out)


def test_report_as_json(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Valid, inert, with the names as they are."""
    code = main(["report", "--json", "--db", db])
    out = capsys.readouterr().out
    body = json.loads(out)

    assert code == 0
    assert _inert(out)
    assert [c["path"] for c in body["checkpoints"]] == list(NAMES)
    assert "streams" not in body["checkpoints"][0]


def test_database_from_the_environment(
    db: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CKPTPROF_DB stands for --db."""
    monkeypatch.setenv("CKPTPROF_DB", db)

    assert main(["list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ([], "1234"), (["--limit", "2"], "34"), (["--kind", "restore"], "4"), (["--job", "job-1"], "13"),
        (["--job", "job-*"], "1234"), (["--since", "5m"], "34"), (["--until", "5m"], "12"),
        (["--since", "5m", "--kind", "save"], "3"),
    ],
)  # fmt: skip
def test_list_filters(options: list[str], steps: str, db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every filter does what it says, in lines of twelve fields."""
    code = main(["list", "--db", db, *options])
    out = capsys.readouterr().out
    lines = [line.split("\t") for line in out.splitlines()]

    assert code == 0
    assert {len(line) for line in lines} == {12}
    assert "".join(line[6] for line in lines) == steps
    assert _inert(out)


def test_copies_are_asked_for(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """They are left out and counted, listed with --kind copy, and shown by their number like any other."""
    with closing(StoreWriter(db, ballast_bytes=0)) as writer:
        one = _checkpoint(5, time.time_ns() - 60 * SECOND, "/backup/x.pt")
        (copy,) = writer.add_checkpoints([msgspec.structs.replace(one, kind=Kind.COPY)])
    assert main(["report", "--db", db, "--no-color"]) == 0
    report = capsys.readouterr().out
    assert main(["list", "--db", db, "--kind", "COPY"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert main(["report", "--db", db, "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert main(["list", "--db", db, "--since", "90s"]) == 3
    nothing = capsys.readouterr().err
    assert main(["show", str(copy.id), "--db", db]) == 0

    assert "/backup/x.pt" not in report
    assert "1 copy of checkpoint files was left out: `ckptprof report --kind copy`" in report
    assert line.split("\t")[2] == "copy"
    assert (body["copies_left_out"], len(body["checkpoints"])) == (1, 4)
    assert nothing.endswith("only 1 copy\nhint: --kind copy lists them\n")
    assert capsys.readouterr().out.startswith("Copy 5, job-1")


def test_show(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One checkpoint with its chart and evidence, and its document."""
    assert main(["show", "2", "--db", db]) == 0
    text = capsys.readouterr().out
    assert main(["show", "2", "--db", db, "--json"]) == 0
    body = json.loads(capsys.readouterr().out)

    assert "Bandwidth over time" in text
    assert "format: " in text
    assert _inert(text)
    assert body["checkpoint"]["path"] == NAMES[1]
    assert len(body["checkpoint"]["timeline"]) == 2


@pytest.mark.parametrize("identity", ["0", "99", str(2**63 - 1)])
def test_show_of_nothing(identity: str, db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A number that no checkpoint has is 3."""
    assert main(["show", identity, "--db", db]) == 3
    assert capsys.readouterr().err.startswith(f"ckptprof: there is no checkpoint {identity}\nhint: ")


@pytest.mark.parametrize("command", ["report", "list"])
def test_nothing_found(command: str, db: str, empty_db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 3 and a sentence, and with --json the empty document as well."""
    for path, options in ((db, ["--job", "nobody"]), (empty_db, [])):
        assert main([command, "--db", path, *options]) == 3
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("ckptprof: ")
        assert "\nhint: " in err
        assert main([command, "--db", path, *options, "--json"]) == 3
        assert json.loads(capsys.readouterr().out)["checkpoints"] == []


def test_bad_databases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Missing, a directory, text: one line each, and 6."""
    text = tmp_path / "text.db"
    text.write_text("hello\n" * 1000)
    for path in (tmp_path / "missing.db", tmp_path, text):
        for command in (["report"], ["list"], ["show", "1"]):
            assert main([*command, "--db", str(path)]) == 6
            out, err = capsys.readouterr()
            assert out == ""
            assert err.startswith("ckptprof: ")
            assert "Traceback" not in err
    assert not (tmp_path / "missing.db").exists()


def test_pipe_into_head(db: str) -> None:
    """`ckptprof list | head -1`, in a locale without Unicode, ends quietly."""
    program = [sys.executable, "-c", "from ckptprof.cli.main import entry; entry()", "show", "3", "--db", db]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.readline()
        process.stdout.close()
        complaint = process.stderr.read()

    assert first.startswith(b"Save 3, job-1, step 3")
    assert complaint == b""
