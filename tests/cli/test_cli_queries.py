"""report, list and show against a real database, end to end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import unicodedata
import uuid
from contextlib import closing
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from ckptprof.cli.main import main
from ckptprof.model import Checkpoint, Evidence, Kind, Level, Pattern, PatternClass, Point, Session, Stream, Writer
from ckptprof.report import comparison, conditions
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
        writers=(Writer(pid=7, comm=path[:15], bytes=1 << 28),), limitations=("offsets",),
        pattern=Pattern(class_=PatternClass.SEQUENTIAL_LARGE, sequential_share_bytes=1.0), confidence=0.9,
        level=Level.POLL, evidence=(Evidence(name="format", weight=2.0, text=f"{path} is a zip"),),
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
    writer.start_session(
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
    assert "\nWatched   10 min 00 s on node-1, " in out
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
    """Every filter does what it says, in lines of fourteen fields."""
    code = main(["list", "--db", db, *options])
    out = capsys.readouterr().out
    lines = [line.split("\t") for line in out.splitlines()]

    assert code == 0
    assert {len(line) for line in lines} == {14}
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
    said = f"1 copy of checkpoint files is not shown: `ckptprof report --kind copy --db {db}` lists them."
    assert "".join(said.split()) in "".join(report.split())  # a long path is broken to fit the terminal
    assert line.split("\t")[2] == "copy"
    assert (body["copies_left_out"], len(body["checkpoints"])) == (1, 4)
    assert nothing.endswith("only 1 copy\nhint: --kind copy lists them\n")
    assert capsys.readouterr().out.startswith("Copy 5, job-1")


def test_show_by_the_uid_of_an_exemplar(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As Grafana shows it beside a bucket; one that is nobody's is told as an id is."""
    uid = str(uuid.uuid4())
    with closing(StoreWriter(db)) as writer:
        (added,) = writer.add_checkpoints([msgspec.structs.replace(_checkpoint(9, SECOND, "/ckpt/9.pt"), uid=uid)])

    assert main(["show", uid.upper(), "--json", "--db", db]) == 0
    assert json.loads(capsys.readouterr().out)["checkpoint"]["id"] == added.id
    assert main(["show", str(uuid.uuid4()), "--db", db]) == 3


def test_show(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One checkpoint in short, with its chart and evidence, and its document; what scrolled away comes again."""
    assert main(["show", "2", "--db", db]) == 0
    short = capsys.readouterr().out
    assert main(["show", "2", "--all", "--db", db]) == 0
    text = capsys.readouterr().out
    assert main(["show", "2", "--db", db, "--json"]) == 0
    body = json.loads(capsys.readouterr().out)

    assert f"`ckptprofshow2--all--db{db}`" in "".join(short.split())  # a long path is broken at its slashes
    assert "Bandwidth over time" not in short
    assert "Bandwidth over time" in text
    assert "format: " in text
    assert text.splitlines()[-2].startswith("Limit ")
    assert _inert(short + text)
    assert body["checkpoint"]["path"] == NAMES[1]
    assert len(body["checkpoint"]["timeline"]) == 2


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (["--fail-on", "count<1,incomplete>0,save_p99>2m"], 0, []),
        (
            ["--fail-on", "count>3", "--fail-on", "save_max>1.5s"],
            7,
            ["count>3: it is 4", "save_max>1.5s: it is 2.00 s"],
        ),
        (["--fail-on", "stall_p95>60s"], 8, ["stall_p95>60s cannot be decided: not observed for any of 3 saves"]),
        (["--fail-on", "stall_p95>60s", "--allow-unknown"], 0, ["stall_p95>60s cannot be decided"]),
        (["--fail-on", "stall_p95>60s,saves=3"], 7, ["stall_p95>60s cannot be decided", "saves=3: it is 3"]),
        (["--fail-on", "limit=device", "--json"], 8, ["no checkpoint has a known limit"]),
        (["--job", "nobody", "--fail-on", "count<1"], 7, ["count<1: it is 0"]),
        (["--job", "nobody", "--fail-on", "incomplete>0"], 3, ["found no matching checkpoint"]),
    ],
)
def test_conditions_become_exit_codes(
    options: list[str], code: int, told: list[str], db: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each that holds is told on stderr with its value, after the report, which is what it would be without them."""
    assert main(["report", "--db", db, "--no-color", *options]) == code
    out, err = capsys.readouterr()

    for text in told:
        assert text in err
    assert bool(told) is bool(err)
    if "--json" in options:
        assert len(json.loads(out)["checkpoints"]) == 4
    elif code != 3:
        assert "Watched  " in out
    assert _inert(out + err)


@pytest.mark.parametrize(("command", "module"), [("report", conditions), ("diff", comparison)])
def test_help_names_what_conditions_can_be_on(
    command: str, module: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every name there is, statistics apart, and the exit codes."""
    monkeypatch.setenv("COLUMNS", "80")
    assert main([command, "--help"]) == 0
    text = capsys.readouterr().out
    words = set(text.replace(",", " ").replace(";", " ").replace(".", " ").split())

    for name in module.NAMES:
        kind, _, rest = name.partition("_")
        stem, _, statistic = name.rpartition("_")
        assert {name, stem} & words or {kind + "_", rest} <= words
        assert name in words or f"_{statistic}" in words or f"{kind}_" in words
    assert {"7", "8"} <= words
    example = text[text.index("--fail-on CONDITION") :].split("'")[1]
    assert conditions.parse([example], module.NAMES, relative=command == "diff")


def test_diff_of_jobs_ranges_and_databases(db: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two jobs of a database, two times in it, or two databases; all of the same figures."""
    other = str(tmp_path / "other.db")
    with closing(StoreWriter(other, ballast_bytes=0)) as writer:
        start_ns = time.time_ns() - 1000 * SECOND
        writer.add_checkpoints([_checkpoint(n, start_ns + n * 60 * SECOND, f"/c/{n}") for n in (1, 2, 3)])
    assert main(["diff", "job-1", "job-[0]", "--db", db, "--no-color"]) == 0
    jobs = capsys.readouterr().out
    assert main(["diff", "..5m", "5m..now", "--db", db, "--json"]) == 0
    ranges = json.loads(capsys.readouterr().out)
    assert main(["diff", db, other, "--kind", "save", "--fail-on", "duration>10%"]) == 8
    databases, err = capsys.readouterr()

    assert jobs.startswith("Before  job-1: 2 saves, ")
    assert "After   job-[0]: 1 save, 1 restore, " in jobs
    assert [ranges[side]["checkpoints"] for side in ("before", "after")] == [2, 2]
    assert "Too few saves to tell (3 vs 3): record at least 4 on each side" in " ".join(databases.split())
    assert _inert(jobs + databases)
    assert err.startswith("ckptprof: --fail-on duration>10% cannot be decided: too few saves to tell (3 vs 3)")


def test_diff_of_a_job_with_a_slash_in_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Which the id that torchrun was given may have."""
    path = str(tmp_path / "x.db")
    with closing(StoreWriter(path, ballast_bytes=0)) as writer:
        one = _checkpoint(1, time.time_ns() - 60 * SECOND, "/c/1")
        writer.add_checkpoints([msgspec.structs.replace(one, job="train.py-team/7")])

    assert main(["diff", "train.py-team/7", "train.py-team/7", "--db", path, "--no-color"]) == 0
    assert capsys.readouterr().out.startswith("Before  train.py-team/7: 1 save, ")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["job-1", "nobody"], 3, "'nobody' has no matching checkpoint"),
        (["job-1", "job-2", "--job", "x"], 2, "'job-1' and --job x both name a job"),
        (["1h..2h", "job-1"], 2, "'1h..2h' is not a time range"),
        (["1h..x", "job-1"], 2, "the end of 'x' is not a time"),
        (["/nowhere/x.db", "job-1"], 6, "no database at /nowhere/x.db"),
        (["job-1", "nope.db"], 6, "/nope.db"),
        (["runs/before", "job-1"], 6, "no database at runs/before"),
        (["job-1", "job-1", "--fail-on", "duration_p95>1s"], 2, "unknown name 'duration_p95'"),
        (["job-1", "job-1", "--fail-on", "duration"], 2, "> or <, and a change, as in --fail-on 'duration>10%'"),
        (["job-1", "job-1", "--fail-on", ","], 2, "hint: --fail-on 'duration>10%'"),
        (["job-1"], 2, "missing"),
    ],
)
def test_diff_refuses_in_one_line(
    arguments: list[str], code: int, message: str, db: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what A and B can be."""
    assert main(["diff", "--db", db, *arguments]) == code
    out, err = capsys.readouterr()

    assert out == ""
    assert message.lower() in err.lower()
    assert "\nhint: " in err


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
