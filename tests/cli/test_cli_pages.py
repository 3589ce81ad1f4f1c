"""`--html`: where the page goes, who may read it, and what is no reason to lose a file."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.patience import PATIENCE_SECONDS

from ckptprof.cli.main import main
from ckptprof.model import Checkpoint, DeviceShare, Kind, Level, Pattern, Report, Session
from ckptprof.store.migrations import LATEST_SCHEMA
from ckptprof.store.reader import StoreReader
from ckptprof.store.writer import StoreWriter

FIXTURES = Path(__file__).parents[1] / "fixtures" / "store"
UNSEEN = Pattern(
    class_=None, sequential_share_bytes=None, consecutive_share_bytes=None, large_share_bytes=None,
)  # fmt: skip


@pytest.fixture
def db(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a database with one save."""
    path = tmp_path_factory.mktemp("recorded") / "ckptprof.db"
    now_ns = time.time_ns()
    told: dict[str, Any] = {"evidence": (), "writers": (), "pattern": UNSEEN, "limitations": (), "confidence": 0.9}
    begin_ns = now_ns - 60_000_000_000
    one = Checkpoint(
        uid="u", kind=Kind.SAVE, job="job", framework=None, step=1, ranks=None, start_ns=begin_ns,
        end_ns=begin_ns + 10**9, bytes=1 << 20, files=1, path="/c/model.pt", level=Level.POLL, **told,
    )  # fmt: skip
    writer = StoreWriter(path, ballast_bytes=0)
    writer.start_session(
        Session(
            uid="s", host="node-1", boot_id="b", kernel="6.1", version="0", level="poll", start_ns=begin_ns,
            end_ns=now_ns, clean=True,
        )
    )  # fmt: skip
    writer.add_checkpoints([one])
    writer.close()
    return str(path)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that commands run in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("command", "name"), [(["report"], "ckptprof-report.html"), (["show", "1"], "ckptprof-save-1.html")]
)
def test_a_page_is_a_file_for_its_owner(
    command: list[str], name: str, folder: Path, db: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its path is all that is printed; one that exists is not written over unasked."""
    assert main([*command, "--html", "--db", db]) == 0
    assert capsys.readouterr().out == f"{name}\n"
    page = folder / name
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert stat.S_IMODE(page.stat().st_mode) == 0o600

    page.write_text("mine")
    assert main([*command, "--html", "--db", db]) == 2
    assert "exists already" in capsys.readouterr().err
    assert page.read_text() == "mine"
    assert main([*command, "--html", "--force", "--db", db]) == 0
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_the_page_of_a_run_has_the_devices_of_its_slowest_checkpoint(
    db: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which of them its checkpoints lie on; only a single checkpoint has them."""
    reports: list[Report] = []
    monkeypatch.setattr("ckptprof.report.html.page.render", lambda report, *_, **__: reports.append(report) or "")
    with StoreReader(db) as reader:
        first = reader.checkpoint(1)
    assert first is not None
    disk = DeviceShare(device="sdx", kind="block", read_bytes=0, written_bytes=1, busy_seconds=None, under="/c")
    more = [
        msgspec.structs.replace(first, id=0, uid=str(spent), end_ns=first.start_ns + spent * 10**9, devices=(disk,))
        for spent in (30, 90)
    ]
    writer = StoreWriter(db, ballast_bytes=0)
    writer.add_checkpoints(more)
    writer.close()
    assert main(["report", "--html", "-o", "-", "--db", db]) == 0
    (report,) = reports
    assert [one.uid for one in report.checkpoints if one.devices] == ["90"]
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["report", "--html", "a page"], "a page"),
        (["report", "--html", "page.html", "--job", "job"], "page.html"),
        (["report", "--html", "--job", "job"], "ckptprof-report.html"),
        (["show", "1", "--html", "page.html"], "page.html"),
        (["show", "--html", "page.html", "1"], "page.html"),
        (["show", "--html", "1"], "ckptprof-save-1.html"),
        (["show", "1", "--html=page"], "page"),
        (["diff", "--html", "DB", "DB"], "ckptprof-diff.html"),
        (["diff", "DB", "DB", "--html", "page.html"], "page.html"),
    ],
)
def test_html_takes_the_file(
    command: list[str], name: str, folder: Path, db: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where a command has arguments, only a word that ends in .html is one: a database is never written over."""
    assert main([db if word == "DB" else word for word in command] + ["--db", db]) == 0
    assert capsys.readouterr().out == f"{name}\n"
    assert [page.name for page in folder.iterdir()] == [name]
    assert (folder / name).read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_page_goes_to_standard_output(db: str, folder: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """And no file is made."""
    assert main(["report", "--html", "-o", "-", "--db", db]) == 0
    page = capfdbinary.readouterr().out
    assert page.startswith(b"<!doctype html>")
    assert main(["report", "--html", "-", "--db", db]) == 0
    assert capfdbinary.readouterr().out[:500] == page[:500]
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--html", "--json"], (2, "different formats")),
        (["--force"], (2, "need --html")),
        (["--html", "-o", "-", "--open"], (2, "needs a file")),
        (["--html", "-", "--open"], (2, "needs a file")),
        (["--html", "a.html", "-o", "b.html"], (2, "both name a file")),
        (["--html", "-o", "nowhere/page.html"], (1, "No such file or directory")),
        (["--html", "-o", "."], (2, ". is a folder")),
        (["--html", "-o", ".", "--force"], (1, "Is a directory")),
    ],
)
def test_what_makes_no_sense_is_said(
    options: list[str], told: tuple[int, str], db: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, with what to do."""
    code, said = told
    assert main(["report", *options, "--db", db]) == code
    out, err = capsys.readouterr()
    assert said in err
    assert "hint: " in err
    assert (out, list(folder.iterdir())) == ("", [])


def test_where_there_is_no_desktop_the_page_is_there_all_the_same(
    db: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And it says where to look."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert main(["report", "--html", "--open", "--db", db]) == 1
    assert "no browser" in capsys.readouterr().err
    assert (folder / "ckptprof-report.html").exists()


def test_a_difference_is_a_page(folder: Path, db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As `report` writes one; what was asked of the change is told by the exit code all the same."""
    assert main(["diff", db, db, "--html"]) == 0
    assert capsys.readouterr().out == "ckptprof-diff.html\n"
    text = (folder / "ckptprof-diff.html").read_text(encoding="utf-8")
    assert "Too few saves to tell (1 vs 1)" in text

    assert main(["diff", db, db, "--html", "--force", "--fail-on", "duration>10%"]) == 8
    assert main(["diff", db, db, "--html", "--json"]) == 2


@pytest.mark.parametrize(
    ("version", "told"),
    [
        (4, ""),
        (LATEST_SCHEMA - 1, "between releases"),
        (LATEST_SCHEMA, ""),
        (99, "newer ckptprof (schema"),
    ],
)
def test_a_database_of_no_release_makes_no_page(
    version: int, told: str, folder: Path, db: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says which versions; a released one does, whoever wrote it."""
    other = folder / "other.db"
    source = FIXTURES / f"schema-{4 if version == 4 else LATEST_SCHEMA}.sql"
    with closing(sqlite3.connect(other)) as connection:
        connection.executescript(source.read_text(encoding="utf-8"))
        connection.execute(f"PRAGMA user_version = {version}")
    assert main(["report", "--html", "--db", str(other)]) == (6 if told else 0)
    assert told in capsys.readouterr().err
    pages = [page.read_text(encoding="utf-8") for page in folder.glob("*.html")]
    assert ["Where the time went" in page for page in pages] == ([] if told else [True])


def test_where_nothing_was_seen_the_page_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """So that yesterday's is not taken for today's; the exit code is that of the text."""
    db = folder / "none.db"
    StoreWriter(db, ballast_bytes=0).close()
    assert main(["report", "--html", "--db", str(db)]) == 3
    assert capsys.readouterr().out == "ckptprof-report.html\n"
    assert "No checkpoint was found." in (folder / "ckptprof-report.html").read_text(encoding="utf-8")


def test_a_folder_that_takes_no_file_is_named(folder: Path, db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As sysfs, in which not even root can make one."""
    assert main(["report", "--html", "-o", "/sys/page.html", "--db", db]) in (1, 5)
    out, err = capsys.readouterr()
    assert (out, "/sys/page.html: " in err, "give a writable file" in err) == ("", True, True)


def test_a_link_is_not_followed(folder: Path, db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In a shared folder it may be another user's, to any file of ours."""
    (folder / "mine").write_text("precious", encoding="utf-8")
    (folder / "page.html").symlink_to("mine")

    assert main(["report", "--html", "-o", "page.html", "--force", "--db", db]) == 1
    assert "page.html: Too many levels of symbolic links" in capsys.readouterr().err
    assert (folder / "mine").read_text(encoding="utf-8") == "precious"


@pytest.mark.parametrize("options", [[], ["--force"]])
def test_half_a_page_is_not_left(options: list[str], folder: Path, db: str) -> None:
    """Where the disk is full, or a file may not be so large: it is said, and nobody mails the half."""
    command = ["report", "--html", *options, "--db", db]
    script = (
        "import resource, sys\n"
        "from ckptprof.cli.main import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        f"sys.exit(main({command!r}))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "ckptprof-report.html: File too large" in done.stderr
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("command", [["report"], ["show", "1"], ["diff", "DB", "DB"]])
@pytest.mark.parametrize("content", [None, "", "hello\n" * 1000])
def test_what_is_no_database_makes_no_page(
    command: list[str], content: str | None, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that is missing, empty, or of another program; the exit code is that of the text."""
    db = folder / "some.db"
    if content is not None:
        db.write_text(content)
    asked = [str(db) if word == "DB" else word for word in command]
    assert main([*asked, "--html", "--db", str(db)]) == 6
    out, err = capsys.readouterr()
    assert (out, str(db) in err, "hint: " in err) == ("", True, True)
    assert list(folder.glob("*.html")) == []


def test_a_page_of_no_checkpoint_is_not_made(folder: Path, db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One that is asked for by its number must be there."""
    assert main(["show", "99", "--html", "--db", db]) == 3
    assert "99" in capsys.readouterr().err
    assert list(folder.iterdir()) == []


def test_a_reader_that_goes_away_is_no_error(folder: Path, db: str) -> None:
    """As for every command: it ends as a program that SIGPIPE ended, and says nothing."""
    command = [sys.executable, "-m", "ckptprof", "report", "--html", "-o", "-", "--db", db]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        complaint = process.stderr.read()
        process.wait(timeout=PATIENCE_SECONDS)
    assert (complaint, process.returncode) == (b"", 141)
