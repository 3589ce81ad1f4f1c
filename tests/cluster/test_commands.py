"""report, list, show, diff and plan over the databases of several nodes, end to end."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from tests.cluster.nodes import GOOD, NOBODY_KNOWS, Job
from tests.report.schemas import validate

from ckptprof.cli.main import main
from ckptprof.cluster.model import NodeRecord
from ckptprof.model import Kind, Session
from ckptprof.store.writer import StoreWriter
from ckptprof.verdicts import Cost

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"


def write(folder: Path, records: Sequence[NodeRecord]) -> list[Path]:
    """Write the database of each node into a folder."""
    folder.mkdir(exist_ok=True)
    return [_database(folder / record.database, record) for record in records]


def _database(path: Path, record: NodeRecord) -> Path:
    watched = record.watched
    assert watched.start_ns is not None
    assert watched.end_ns is not None
    with closing(StoreWriter(path, ballast_bytes=0)) as writer:
        writer.start_session(
            Session(
                uid=record.host, host=record.host, boot_id="b", kernel="6.1", version="0", level="poll",
                start_ns=watched.start_ns, end_ns=watched.end_ns, clean=True,
            )
        )  # fmt: skip
        writer.add_checkpoints(record.checkpoints)
    return path


@pytest.fixture
def nodes(tmp_path: Path) -> Path:
    """Return a folder with the databases of four nodes, of which the second is slow."""
    records, _ = Job(nodes=4, late_s={1: 4.0}, clocks=dict.fromkeys(range(4), GOOD)).seen()
    write(tmp_path / "nodes", records)
    return tmp_path / "nodes"


def _json(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    main([*words, "--json"])
    told: dict[str, object] = json.loads(capsys.readouterr().out)
    return told


@pytest.mark.parametrize("form", ["folder", "pattern", "each"])
def test_a_list_has_a_line_for_each_checkpoint_of_all_nodes(
    nodes: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """However the databases are named; what is asked for is asked of the whole."""
    named = {
        "folder": ["--db", str(nodes)],
        "pattern": ["--db", f"{nodes}/train-*.db"],
        "each": [word for path in sorted(nodes.glob("*.db")) for word in ("--db", str(path))],
    }[form]

    assert main(["list", *named, "--limit", "2"]) == 0

    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [(line[0], line[2], line[6], *line[-3:]) for line in lines] == [
        ("11", "save", "1100", "4", "32", "train-node-1"),
        ("12", "save", "1200", "4", "32", "train-node-1"),
    ]


def test_a_pattern_fits_no_file_that_lies_beside_a_database(nodes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are read with it."""
    for suffix in ("-wal", "-shm", "-journal", ".lock"):
        (nodes / f"away.db{suffix}").write_bytes(b"x" * 40)

    assert main(["list", "--db", f"{nodes}/*"]) == 0
    assert capsys.readouterr().err == ""


def test_gpu_time_is_the_sum_over_the_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that was blocked for long does not make the others' so."""
    records, _ = Job(nodes=4, saves=3, late_s={2: 90.0}).seen()
    records = [
        msgspec.structs.replace(
            record, checkpoints=tuple(
                msgspec.structs.replace(one, cost=Cost(gpus=8, gpus_from="nvml")) for one in record.checkpoints
            ),
        )
        for record in records
    ]  # fmt: skip
    write(tmp_path / "nodes", records)

    told = _json(capsys, "report", "--db", str(tmp_path / "nodes"))

    spent = sum(8 * (one.stall_ns or 0) / 1e9 for record in records for one in record.checkpoints)
    assert told["jobs"][0]["gpu_seconds"] == pytest.approx(spent)  # type: ignore[index]


def test_a_report_opens_with_what_it_cost_and_who_is_slow(nodes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Then what limits it, and a line for each checkpoint; as JSON the same."""
    assert main(["report", "--db", str(nodes)]) == 0

    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith("Answer train: on 4 nodes 12 saves of 419 MB (11.9 s on average)")
    assert "train-node-1 was the last in 12 of its 12 checkpoints" in text
    assert "(its limit: network)" in text
    told = _json(capsys, "report", "--db", str(nodes))
    validate("cluster", told)
    assert [one["host"] for one in told["slow"]] == ["train-node-1"]  # type: ignore[attr-defined, index]


def test_one_checkpoint_has_a_line_for_each_node(nodes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By its number, or by a uid that any node has for it."""
    told = _json(capsys, "show", "7", "--db", str(nodes))
    validate("cluster-show", told)
    parts = told["checkpoint"]["nodes"]  # type: ignore[index]

    assert main(["show", parts[2]["uid"], "--db", str(nodes)]) == 0

    text = capsys.readouterr().out
    assert text.startswith("Save 7 of step 700 by train")
    assert text.count("/nodes/train-node-") + text.count("…") >= 4
    told_last = "Last train-node-1 ended 3.98 s after the others; its limit: network; the last in 7 of its last 7"
    assert told_last in " ".join(text.split())
    assert main(["show", "13", "--db", str(nodes)]) == 3


@pytest.mark.parametrize("words", [["show", "7", "--all"], ["show", "7", "--html"], ["report", "--html"]])
def test_what_is_of_one_node_says_so(nodes: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """In one line, and writes nothing."""
    assert main([*words, "--db", str(nodes)]) == 2

    assert "one node only" in capsys.readouterr().err


def test_a_condition_is_judged_of_the_whole(nodes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A save takes as long as its slowest node."""
    assert main(["report", "--db", str(nodes), "--fail-on", "save_p99>11s"]) == 7
    assert main(["report", "--db", str(nodes), "--fail-on", "save_p99>13s"]) == 0
    assert "it is 12.0 s" in capsys.readouterr().err


def test_a_plan_and_a_difference_are_of_the_whole(
    nodes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The size of all nodes together; before and after a node was mended."""
    write(tmp_path / "after", Job(nodes=4).seen()[0])

    plan = _json(capsys, "plan", "--db", str(nodes), "--mttf", "3h")
    assert plan["basis"]["size_bytes"]["value"] == 4 * Job().of.bytes  # type: ignore[index]
    assert main(["diff", f"{nodes}/", f"{tmp_path}/after/*.db"]) == 0
    assert "faster" in capsys.readouterr().out


def test_what_cannot_be_read_is_named_and_the_rest_told(nodes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """None of ours, empty, damaged, away: the exit code says that something is missing. An older schema is read."""
    (nodes / "a.db").write_bytes(b"x" * 4096)
    (nodes / "b.db").write_bytes(b"")
    with closing(sqlite3.connect(nodes / "c.db")) as raw:
        raw.executescript((FIXTURES / "store" / "schema-4.sql").read_text(encoding="utf-8"))
    whole = (nodes / "train-node-3.db").read_bytes()
    (nodes / "train-node-3.db").write_bytes(whole[: len(whole) // 2 // 4096 * 4096])
    named = ["--db", str(nodes), "--db", str(nodes / "away.db")]

    assert main(["list", *named]) == 6

    told, complaints = capsys.readouterr()
    assert [line.split("\t")[14] for line in told.splitlines()] == ["1", *["3/4"] * 12]
    assert [f"/{name}.db" in complaints for name in ("a", "b", "away", "train-node-3")] == [True] * 4
    assert len(complaints.splitlines()) == 4
    assert len(_json(capsys, "report", *named)["unread"]) == 4  # type: ignore[arg-type]
    assert main(["report", *named]) == 6
    assert main(["show", "99", *named]) == 6
    assert "no checkpoint 99 in the readable databases" in capsys.readouterr().err


def test_a_file_copied_while_it_is_written_tells_what_it_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without its log it lacks the newest; nothing is told twice when both copies are given."""
    records, _ = Job(nodes=2, saves=4).seen()
    folder = tmp_path / "nodes"
    write(folder, records[:1])
    record = records[1]
    with closing(StoreWriter(tmp_path / "live.db", ballast_bytes=0)) as writer:
        writer.start_session(
            Session(
                uid="s", host=record.host, boot_id="b", kernel="6.1", version="0", level="poll",
                start_ns=record.watched.start_ns or 0, end_ns=record.watched.end_ns or 0, clean=True,
            )
        )  # fmt: skip
        writer.add_checkpoints(record.checkpoints[:3])
        for suffix in ("", "-wal", "-shm"):
            shutil.copy(tmp_path / f"live.db{suffix}", folder / f"copy.db{suffix}")
        writer.add_checkpoints(record.checkpoints[3:])
        shutil.copy(tmp_path / "live.db", folder / "torn.db")

        code = main(["list", "--db", str(folder)])

    told = [line.split("\t")[14] for line in capsys.readouterr().out.splitlines()]
    assert code in (0, 6)  # the log alone may have all of it: then the copy is empty
    assert told == ["2", "2", "2", "1/2"]


def test_a_folder_with_one_database_is_that_database(nodes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same is told as of the file."""
    for path in list(nodes.glob("*.db"))[1:]:
        path.unlink()
    (path,) = nodes.glob("*.db")

    main(["list", "--db", str(nodes)])
    of_folder = capsys.readouterr().out
    main(["list", "--db", str(path)])

    assert of_folder == capsys.readouterr().out


def test_a_folder_or_a_pattern_without_any_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is that of a database that is not there."""
    assert main(["report", "--db", str(tmp_path)]) == 6
    assert main(["report", "--db", f"{tmp_path}/*.db"]) == 6
    assert capsys.readouterr().err.count("hint: ") == 2


@pytest.mark.parametrize("kind", [Kind.RESTORE, Kind.COPY])
def test_a_number_is_the_same_in_each_answer(tmp_path: Path, kind: Kind, capsys: pytest.CaptureFixture[str]) -> None:
    """What is asked for leaves the others out of it, not out of the numbers; nor out of what tells of clocks."""
    clocks, ahead = {1: NOBODY_KNOWS}, {1: 200.0}
    saves, _ = Job(nodes=2, saves=4, clocks=clocks, ahead_s=ahead).seen()
    others, _ = Job(nodes=2, saves=2, begin_s=3000, clocks=clocks, ahead_s=ahead, kind=kind).seen()
    records = [
        msgspec.structs.replace(
            one, checkpoints=tuple(
                msgspec.structs.replace(told, id=n) for n, told in enumerate((*one.checkpoints, *two.checkpoints), 1)
            ),
        )
        for one, two in zip(saves, others, strict=True)
    ]  # fmt: skip
    write(tmp_path / "nodes", records)
    db = ["--db", str(tmp_path / "nodes")]

    assert main(["list", "--kind", kind.value, *db]) == 0

    numbers = [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()]
    assert numbers == (["5", "6"] if kind is Kind.RESTORE else ["5", "6", "7", "8"])
    for number in numbers:
        assert main(["show", number, *db]) == 0
        assert capsys.readouterr().out.startswith(f"{kind.value.capitalize()} {number} ")
    assert main(["list", *db]) == 0
    assert [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()] == ["1", "2", "3", "4"] + (
        ["5", "6"] if kind is Kind.RESTORE else []
    )


def test_what_fits_no_question_is_nothing(nodes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As of one database."""
    assert main(["list", "--db", str(nodes), "--job", "other"]) == 3
    assert main(["report", "--db", str(nodes), "--kind", "copy"]) == 3


def test_a_database_that_the_environment_names_may_have_spaces(
    nodes: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is one path, not a list of words."""
    path = nodes / "with space.db"
    (nodes / "train-node-0.db").rename(path)
    monkeypatch.setenv("CKPTPROF_DB", str(path))

    assert main(["list", "--limit", "1"]) == 0
    assert capsys.readouterr().out.startswith("12\t")
