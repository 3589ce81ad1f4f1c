"""`ckptprof fleet annotate`: what is noted of a Slurm job, and that no other comment, and no other job, is touched."""

from __future__ import annotations

import contextlib
import json
import stat
from pathlib import Path

import pytest
from tests.cluster.nodes import Job
from tests.cluster.test_commands import write
from tests.report.schemas import validate

from ckptprof.cli.main import main
from ckptprof.cluster.annotations import JobId, SlurmCosts, annotation_texts
from ckptprof.cluster.merging import merge
from ckptprof.fleet.questions import FleetDatabase
from ckptprof.model import CheckpointQuery
from ckptprof.service.commands import accounting

SACCT = """#!/usr/bin/env python3
import json, os, sys
from pathlib import Path
state = Path(os.environ["SLURM_STATE"])
said = dict(word.lstrip("-").split("=", 1) for word in sys.argv[1:] if "=" in word)
with (state / "calls").open("a") as calls:
    calls.write(json.dumps(["sacct", *sys.argv[1:]]) + "\\n")
for job in said["jobs"].split(","):
    kept = state / ("alpha-" + job)
    if kept.exists():
        print(job + "|alpha|" + kept.read_text())
"""
SACCTMGR = """#!/usr/bin/env python3
import json, os, sys
from pathlib import Path
state = Path(os.environ["SLURM_STATE"])
said = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
with (state / "calls").open("a") as calls:
    calls.write(json.dumps(["sacctmgr", *sys.argv[1:]]) + "\\n")
if (state / "refuses").exists():
    sys.exit(" Only administrators may\\n sacctmgr: error: Access/permission denied")
if not (state / "loses").exists():
    (state / ("alpha-" + said["jobid"])).write_text(said["AdminComment"])
"""
NOTE = (
    "cp1: saves=3 restores=0 incomplete=0 bytes=629161470 stall_seconds=24 stalls_unknown=0 gpu_seconds=380 "
    "share=0.0133 limit=device newest_step=300"
)


class Slurm:
    """Programs that play Slurm's accounting, with a file for each job that it knows."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.state.mkdir()
        for name, text in (("sacct", SACCT), ("sacctmgr", SACCTMGR)):
            program = folder / name
            program.write_text(text)
            program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def knows(self, job: str, comment: str = "") -> None:
        """Let a job of this cluster have a comment."""
        (self.state / f"alpha-{job}").write_text(comment)

    def comments(self) -> dict[str, str]:
        """Return what is kept."""
        return {one.name: one.read_text() for one in sorted(self.state.glob("alpha-*"))}

    def calls(self, program: str) -> list[list[str]]:
        """Return how a program was called."""
        kept = self.state / "calls"
        lines = kept.read_text().splitlines() if kept.exists() else []
        return [words for words in map(json.loads, lines) if words[0] == program]


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    """Return the accounting that programs of this test ask."""
    folder = tmp_path / "slurm"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setenv("SLURM_STATE", str(folder / "state"))
    return Slurm(folder)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the databases of three jobs, each of two nodes; the last is of no Slurm."""
    folder = tmp_path_factory.mktemp("site") / "nodes"
    for number, name in (("8812", "first"), ("9000", "second"), ("77", "third")):
        write(folder, Job(nodes=2, saves=3, name=name, key=f"slurm:alpha/{number}.0", job_id=number).seen()[0])
    write(folder, Job(nodes=2, saves=3, name="other", run=False).seen()[0])
    return folder


def asked(site: Path, capsys: pytest.CaptureFixture[str], *more: str, code: int = 0) -> dict[str, object]:
    """Return the answer in JSON."""
    assert main(["fleet", "annotate", "--db", str(site), "--json", *more]) == code
    told: dict[str, object] = json.loads(capsys.readouterr().out)
    validate("fleet-annotate", told)
    return told


def actions(told: dict[str, object]) -> dict[str, str]:
    """Return what was to be done with each job."""
    jobs = told["jobs"]
    assert isinstance(jobs, list)
    return {one["job"]: one["action"] for one in jobs}


def test_nothing_is_written_unless_it_is_asked_for(
    site: Path, slurm: Slurm, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What would be is told, in a table as in JSON."""
    slurm.knows("8812")
    slurm.knows("9000", "JS1:H4sIAAAAAAAAA")

    assert actions(asked(site, capsys)) == {"77": "unknown", "8812": "write", "9000": "foreign"}
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["fleet", "annotate", "--db", str(site)]) == 0
    page = capsys.readouterr().out
    assert "1 not in Slurm, 1 write, 1 not ours" in page
    assert NOTE in page
    assert slurm.calls("sacctmgr") == []


def test_a_job_is_annotated_once(site: Path, slurm: Slurm, capsys: pytest.CaptureFixture[str]) -> None:
    """Where it has no comment, or an older one of ours; another's stays, whatever else is in it."""
    slurm.knows("8812")
    slurm.knows("9000", "cp1: saves=1")
    slurm.knows("77", "by hand, see cp1: | and 'this' $(touch /tmp/x)")

    first = asked(site, capsys, "--write")

    assert actions(first) == {"77": "foreign", "8812": "write", "9000": "renew"}
    assert slurm.comments() == {
        "alpha-77": "by hand, see cp1: | and 'this' $(touch /tmp/x)", "alpha-8812": NOTE, "alpha-9000": NOTE
    }  # fmt: skip
    assert slurm.calls("sacctmgr")[0] == [
        "sacctmgr", "-i", "-Q", "modify", "job", "where", "jobid=8812", "set", f"AdminComment={NOTE}"
    ]  # fmt: skip
    assert actions(asked(site, capsys, "--write")) == {"77": "foreign", "8812": "keep", "9000": "keep"}
    assert len(slurm.calls("sacctmgr")) == 2


def test_a_note_of_more_checkpoints_stays(site: Path, slurm: Slurm, capsys: pytest.CaptureFixture[str]) -> None:
    """As where the question reaches back less far than the job."""
    slurm.knows("8812", "cp1: saves=4 restores=0")

    assert actions(asked(site, capsys, "--write"))["8812"] == "keep"
    assert slurm.comments() == {"alpha-8812": "cp1: saves=4 restores=0"}


def test_the_same_number_on_another_cluster_is_another_job(
    tmp_path: Path, slurm: Slurm, capsys: pytest.CaptureFixture[str]
) -> None:
    """A user may let a job say that it is of any cluster."""
    folder = tmp_path / "nodes"
    write(folder, Job(nodes=2, saves=3, key="slurm:beta/8812.0", job_id="8812").seen()[0])
    slurm.knows("8812")

    assert actions(asked(folder, capsys, "--write")) == {"8812": "unknown"}
    assert slurm.comments() == {"alpha-8812": ""}


def test_what_is_not_there_after_it_was_written_is_said(
    site: Path, slurm: Slurm, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever sacctmgr says."""
    slurm.knows("8812")
    (slurm.state / "loses").touch()

    assert main(["fleet", "annotate", "--db", str(site), "--write"]) == 1
    assert "reported no error, but the comment was not written" in capsys.readouterr().err


def test_what_slurm_refuses_is_said(site: Path, slurm: Slurm, capsys: pytest.CaptureFixture[str]) -> None:
    """Of each job, and the exit code says that not all is done."""
    slurm.knows("8812")
    (slurm.state / "refuses").touch()

    assert main(["fleet", "annotate", "--db", str(site), "--write"]) == 1
    told = capsys.readouterr()
    assert "not written: comment of job 8812: sacctmgr ended with 1: sacctmgr: error: Access/permission" in told.err
    assert "1 failed" in told.out


def test_without_slurm_the_notes_are_told(
    site: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And that nobody could be asked; to write them is an error that says where to."""
    monkeypatch.setenv("PATH", str(tmp_path))

    told = asked(site, capsys)

    assert set(actions(told).values()) == {None}
    assert told["not_queried"] == "sacct is not installed here"
    assert main(["fleet", "annotate", "--db", str(site), "--write"]) == 1
    assert "such as its controller" in capsys.readouterr().err


def test_accounting_that_does_not_answer_holds_nobody(
    site: Path, slurm: Slurm, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is left after a while."""
    monkeypatch.setattr(accounting, "CALL_TIMEOUT_SECONDS", 0.2)
    (slurm.state.parent / "sacct").write_text("#!/bin/sh\nexec sleep 1000\n")

    assert main(["fleet", "annotate", "--db", str(site), "--write"]) == 1
    assert "sacct did not answer" in capsys.readouterr().err


def test_runs_of_one_job_share_a_note_and_no_text_of_the_job_is_in_it() -> None:
    """A requeued job is the same one; a number on two clusters is two."""
    name = "a b|c=d 'e' \n"
    records = [
        *Job(nodes=2, saves=3, name=name, key="slurm:alpha/5.0", job_id="5").seen()[0],
        *Job(nodes=2, saves=2, name=name, key="slurm:alpha/5.0+1", job_id="5", restart=1, begin_s=9_000).seen()[0],
        *Job(nodes=2, saves=1, name=name, key="slurm:beta/5.0", job_id="5").seen()[0],
        *Job(nodes=2, saves=1, name=name, key="kubernetes:x/5", job_id="pod").seen()[0],
    ]

    with contextlib.closing(FleetDatabase()) as tables:
        tables.add_merged(merge(records), ())
        tables.select(CheckpointQuery(), 0)
        made = annotation_texts(tables.ask("cost", SlurmCosts, by="slurm").rows)

    assert {job: note.split()[1] for job, note in made.items()} == {
        JobId("alpha", "5"): "saves=5", JobId("beta", "5"): "saves=1"
    }  # fmt: skip
    assert all(set(note) <= set("cp1: abcdefghijklmnopqrstuvwxyz_=-.0123456789") for note in made.values())
