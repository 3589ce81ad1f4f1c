"""`report --reads` of a database with an evaluation, a fine-tuned run and a deleted save."""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from tests.cli.recorded import BEGIN_NS, HOSTILE, SECOND, recorded, save
from tests.report.schemas import validate

from ckptprof.cli.main import main
from ckptprof.model import Checkpoint, Kind, Stream, Writer
from ckptprof.store.writer import StoreWriter


def with_file(one: Checkpoint, place: str) -> Checkpoint:
    """Return a checkpoint of one file in a folder."""
    span = {"start_ns": one.start_ns, "end_ns": one.end_ns}
    file = Stream(pid=7, comm="python", path=f"{place}/model.pt", bytes=1 << 28, size=None, **span)
    return msgspec.structs.replace(one, streams=(file,), path=place)


def by(job: str, seconds: int, one: Checkpoint, **changes: object) -> Checkpoint:
    """Return it as one of another job, at so many seconds."""
    start_ns = BEGIN_NS + seconds * SECOND
    writers = (Writer(pid=len(job), comm="python", bytes=1 << 28),)
    span = {"start_ns": start_ns, "end_ns": start_ns + SECOND}
    return msgspec.structs.replace(one, uid=f"{job}-{seconds}", job=job, writers=writers, **span, **changes)


@pytest.fixture
def db(tmp_path: Path) -> str:
    """Return saves 0 to 15; 0 is deleted after 60 s, 1 evaluated after 200 s, and fine-tuned from after 220."""
    path = Path(recorded(tmp_path / "ckptprof.db"))
    saves = [with_file(save(number), HOSTILE if number == 2 else f"/ckpt/step-{number}") for number in range(16)]
    evaluated, restored = (
        by(job, seconds, saves[1], kind=Kind.RESTORE, cache=cache)
        for job, seconds, cache in (("eval", 213, "warm"), ("tuner", 233, "cold"))
    )
    tuned = with_file(by("tuner", 243, saves[1]), "/tuned")
    with closing(StoreWriter(path)) as writer:
        writer.add_checkpoints([*saves, evaluated, restored, tuned])
        writer.add_deletions({"/ckpt/step-0": BEGIN_NS + 63 * SECOND})
    return str(path)


def test_who_reads_which_save(db: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The share that is read, each read save and the last ten, and all of it as a document."""
    monkeypatch.setenv("COLUMNS", "130")
    assert main(["report", "--reads", "--db", db]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert main(["report", "--reads", "--json", "--db", db]) == 0
    body = json.loads(capsys.readouterr().out)

    expected = "1 of 17 saves read back (5.9 %); 4.29 GB of 4.56 GB written for saves that no process has read"
    assert lines[0] == expected
    assert lines[2] == "Who reads the saves of train"
    assert [line.split(maxsplit=1)[1] for line in lines[3:6]] == [
        "16, 1 read (6.2 %)",
        "read  3 min 20 s after the save (median): 1 warm",
        "2: 1 read, 1 branch; by eval, tuner",
    ]
    assert lines[6].split(maxsplit=2)[2] == (
        "15 saves, 4.03 GB written; 1 gone (268 MB), at an age of 1 min 00 s (median)"
    )
    titles = ["SAVE", "STEP", "SAVED", "READS", "FIRST READ", "CACHE", "READER", "USES", "GONE", "AGE", "PATH"]
    assert re.split("  +", lines[8].strip()) == titles
    row = re.split("  +", lines[9].strip())
    assert (row[0], row[3:8]) == ("2", ["2", "3 min 20 s", "warm", "eval", "read, branch"])
    assert [line.split()[0] for line in lines[10:20]] == [str(number) for number in range(7, 17)]
    assert "5 older saves without a read: --all lists all." in lines
    validate("reads", body)
    first = body["jobs"][0]["saves"][0]
    assert (first["gone"], first["age_seconds"], first["reads"]) == ("deleted", 60.0, [])


def test_all_saves_are_listed_and_names_are_harmless(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With --all; the third has a name that would clear the screen."""
    assert main(["report", "--reads", "--all", "--db", db]) == 0
    out = capsys.readouterr().out

    assert len(re.findall(r"^ *\d+  ", out, re.MULTILINE)) == 17
    assert "older saves" not in out
    assert "\x1b" not in out


@pytest.mark.parametrize("options", [["--job", "train"], ["--until", f"{BEGIN_NS // SECOND + 150}"], ["--limit", "19"]])
def test_readers_count_whatever_saves_are_chosen(
    db: str, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A reader of another job, or after the end of the chosen time."""
    assert main(["report", "--reads", "--json", "--db", db, *options]) == 0

    (train,) = [job for job in json.loads(capsys.readouterr().out)["jobs"] if job["job"] == "train"]
    assert [len(one["reads"]) for one in train["saves"]][:2] == [0, 2]


@pytest.mark.parametrize(
    ("options", "code", "line"),
    [
        (["--job", "eval"], 3, "no complete save among 1 checkpoints"),
        (["--html"], 2, "--reads excludes --html"),
        (["--restarts"], 2, "--restarts excludes --html"),
        (["--db", "{db}2"], 2, "--reads covers one node only"),
    ],
)
def test_what_is_refused(options: list[str], code: int, line: str, db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In one line."""
    assert main(["report", "--reads", "--db", db, *(one.format(db=db) for one in options)]) == code
    assert line in capsys.readouterr().err
