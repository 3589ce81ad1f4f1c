"""`ckptprof fleet` over the databases of several nodes, end to end."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import unicodedata
from pathlib import Path

import pytest
from tests.cluster.nodes import NOBODY_KNOWS, Job
from tests.cluster.test_commands import write
from tests.report.schemas import validate

from ckptprof.cli.main import main
from ckptprof.report.clean import width as cells

QUESTIONS = ("stragglers", "cost", "limits", "newest", "collisions", "nodes")
HOSTILE = "job\x1b[2J\u202e\n\x07"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the databases of two jobs, of which one has a slow node and the other a hostile name."""
    folder = tmp_path_factory.mktemp("site") / "nodes"
    first, _ = Job(nodes=4, late_s={1: 4.0}, ahead_s={2: 20.0}, clocks={2: NOBODY_KNOWS}, lost={3: [2]}).seen()
    second, _ = Job(nodes=2, name="llm", key="slurm:alpha/9000.0", job_id="9000").seen()
    write(folder, [*first, *second])
    hostile, _ = Job(nodes=1, saves=3, key="slurm:alpha/1.0", job_id="1", name=HOSTILE).seen()
    hostile[0] = type(hostile[0])(
        database="hostile.db", host=HOSTILE, watched=hostile[0].watched, checkpoints=hostile[0].checkpoints
    )
    write(folder, hostile)
    return folder


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_answer_fits_its_schema_and_the_terminal(
    question: str, site: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each width; no name harms; in JSON the same is told."""
    assert main(["fleet", question, "--db", str(site), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    validate(f"fleet-{question}", told)
    assert told["checkpoints"] == 27
    for columns in (40, 60, 80, 120, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main(["fleet", question, "--db", str(site)]) == 0
        text = capsys.readouterr().out
        assert max(map(cells, text.splitlines())) <= columns
        assert {one for one in text if unicodedata.category(one) in ("Cc", "Cf")} <= {"\n"}


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["stragglers"], ["train-node-1! 12 12", "network train", "24 of 27 checkpoints spanned several nodes"]),
        (["stragglers", "--job", "llm"], ["No node delayed the others"]),
        (["cost"], ["train 12 0 4", "llm 12 0 2", "1 checkpoint had nodes that only waited"]),
        (["cost", "--by", "week"], ["WEEK SAVES", "2026-W12 27 0 4"]),
        (["cost", "--by", "storage"], ["nfs:filer:/ckpt 27"]),
        (["limits"], ["nfs:filer:/ckpt network 12", "nfs:filer:/ckpt disk 15"]),
        (["limits", "--split", "2026-03-20T11:00:00Z"], ["Before 2026-03-20 11:00:00 UTC: 15", "11:00:00 UTC: 12"]),
        (["newest"], ["train 1200 9 min", "/ckpt/train/step_1200"]),
        (["collisions"], ["train llm 12/12, 12/12"]),
        (["nodes"], ["7; 1 unusual", "+20.0 s"]),
    ],
)  # fmt: skip
def test_a_question_is_answered(
    words: list[str], lines: list[str], site: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one table."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TZ", "UTC")

    assert main(["fleet", *words, "--db", str(site)]) == 0

    text = " ".join(capsys.readouterr().out.split())
    assert [line for line in lines if line not in text] == []


def test_one_database_is_asked_as_well(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a node alone."""
    assert main(["fleet", "newest", "--db", str(site / "train-node-0.db"), "--json"]) == 0

    assert [one["step"] for one in json.loads(capsys.readouterr().out)["jobs"]] == [1200]


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_could_not_be_read_is_named(
    question: str, site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the page, on stderr, in JSON and by the exit code; the others are told."""
    site = shutil.copytree(site, tmp_path / "nodes")
    (site / "a.db").write_bytes(b"x" * 4096)

    assert main(["fleet", question, "--db", str(site)]) == 6
    told, complaint = capsys.readouterr()
    assert "Not read" in told
    assert "a.db" in complaint
    assert main(["fleet", question, "--db", str(site), "--json"]) == 6
    told = json.loads(capsys.readouterr().out)
    assert len(told["unread"]) == 1
    validate(f"fleet-{question}", told)


@pytest.mark.parametrize("question", QUESTIONS)
def test_nothing_that_fits_is_nothing_found(question: str, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """But nodes are there without a checkpoint, too."""
    code = main(["fleet", question, "--db", str(site), "--job", "other"])

    assert code == (0 if question == "nodes" else 3)
    assert bool(capsys.readouterr().out) == (question == "nodes")


@pytest.mark.parametrize(
    "words", [["limits", "--by", "week"], ["cost", "--split", "2d"], ["limits", "--split", "x"], ["what"], []]
)
def test_an_option_of_another_question_is_refused(words: list[str], site: Path) -> None:
    """In one line."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        assert main(["fleet", *words, "--db", str(site)]) == 2

    assert said.getvalue().startswith("ckptprof: ")
