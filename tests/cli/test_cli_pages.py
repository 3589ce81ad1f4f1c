"""`--html`: where the page goes, who may read it, and what is no reason to lose a file."""

from __future__ import annotations

import stat
import time
from pathlib import Path
from typing import Any

import pytest

from ckptprof.cli.main import main
from ckptprof.model import Checkpoint, Kind, Level, Pattern, Session
from ckptprof.store.writer import StoreWriter

UNSEEN = Pattern(
    class_=None, sequential_share_bytes=None, consecutive_share_bytes=None, large_share_bytes=None,
)  # fmt: skip


@pytest.fixture
def db(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a database with one save."""
    path = tmp_path_factory.mktemp("recorded") / "ckptprof.db"
    now_ns = time.time_ns()
    told: dict[str, Any] = {"evidence": (), "writers": (), "pattern": UNSEEN, "blind": (), "confidence": 0.9}
    begin_ns = now_ns - 60_000_000_000
    one = Checkpoint(
        uid="u", kind=Kind.SAVE, job="job", framework=None, step=1, ranks=None, start_ns=begin_ns,
        end_ns=begin_ns + 10**9, bytes=1 << 20, files=1, path="/c/model.pt", level=Level.POLL, **told,
    )  # fmt: skip
    writer = StoreWriter(path, ballast_bytes=0)
    writer.begin_session(
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


def test_a_page_goes_to_standard_output(db: str, folder: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """And no file is made."""
    assert main(["report", "--html", "-o", "-", "--db", db]) == 0
    assert capfdbinary.readouterr().out.startswith(b"<!doctype html>")
    assert list(folder.glob("*.html")) == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--html", "--json"], (2, "two formats")),
        (["--force"], (2, "are of --html")),
        (["--html", "-o", "-", "--open"], (2, "needs a file")),
        (["--html", "-o", "nowhere/page.html"], (1, "No such file or directory")),
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
    assert "no desktop" in capsys.readouterr().err
    assert (folder / "ckptprof-report.html").exists()
