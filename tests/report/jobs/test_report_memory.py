"""`report --memory` of a database with the saves of a job that leaks and of one that does not."""

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

from ckptprof.cli import report
from ckptprof.cli.main import main
from ckptprof.measures import JobMemoryMeasure, Measures, MemoryMeasure, ProcessMeasure
from ckptprof.model import Checkpoint
from ckptprof.store.timeline import WINDOW_NS, Window
from ckptprof.store.writer import StoreWriter

MB = 1_000_000


def measured(number: int, job: str, before: int) -> Checkpoint:
    """Return a save with the memory of its job."""
    memory = JobMemoryMeasure(
        before_bytes=before, peak_bytes=before + 200 * MB, after_bytes=before, limit_bytes=512 * MB,
        is_of_cgroup=True, used_peak_bytes=min(512 * MB, before + 210 * MB),
    )  # fmt: skip
    host = MemoryMeasure(dirty_max_bytes=80 * MB, shared_before_bytes=MB, shared_peak_bytes=3 * MB, locked_peak_bytes=0)
    measures = Measures(processes=(ProcessMeasure(pid=7, comm="python"),), memory=host, job_memory=memory)
    return msgspec.structs.replace(
        save(number), id=0, uid=f"{job}-{number}", job=job, measures=measures
    )  # fmt: skip


@pytest.fixture
def db(tmp_path: Path) -> str:
    """Return five saves of each job, 40 MB apart or none."""
    path = Path(recorded(tmp_path / "ckptprof.db"))
    with closing(StoreWriter(path)) as writer:
        writer.add_checkpoints([measured(number, "leaks", (100 + 40 * number) * MB) for number in range(5)])
        writer.add_checkpoints([measured(number, "keeps", 100 * MB) for number in range(5)])
    return str(path)


def test_a_kill_is_forecast(db: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The job that leaks first, with a line for each save; and all of it as a document."""
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["report", "--memory", "--db", db]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert main(["report", "--memory", "--json", "--db", db]) == 0
    body = json.loads(capsys.readouterr().out)

    assert lines[0] == "Memory of leaks at its saves"
    assert lines[1].split(maxsplit=2)[2] == "at most 470 MB of 512 MB of its cgroup in use"
    assert lines[2].split(maxsplit=1) == ["Growth", "40.0 MB from save to save"]
    assert lines[3].split(maxsplit=1) == ["Forecast", "killed in about 2 saves"]
    cells = {
        "SAVE": "4", "STEP": "0", "BEFORE": "100 MB", "TAKES": "200 MB", "STAYS": "40.0 MB", "SHARED": "3.00 MB",
        "LOCKED": "0 B", "DIRTY": "80.0 MB", "USED": "310 MB", "LIMIT": "512 MB",
    }  # fmt: skip
    assert lines[5].split() == [*cells]
    assert re.split(r"  +", lines[6].strip()) == [*cells.values()]
    assert [line.split(maxsplit=1)[1] for line in lines if "Growth" in line][1] == "not steady, or too slow to matter"
    assert sum("Forecast" in line for line in lines) == 1
    validate("memory", body)
    assert [(job["job"], job["saves_left"]) for job in body["jobs"]] == [("leaks", 2), ("keeps", None)]

    monkeypatch.setattr(report, "_MEMORY_SAVES", 7)  # the newest: one of them has no measures
    assert main(["report", "--memory", "--json", "--db", db]) == 0
    body = json.loads(capsys.readouterr().out)
    assert sum(len(job["saves"]) for job in body["jobs"]) == 6


def test_a_job_that_was_killed(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The kernel counts a kill as its counters end; what was forecast is in the document only."""
    with closing(StoreWriter(Path(db))) as writer:
        times = array("q", (BEGIN_NS + second * SECOND for second in range(59)))
        start_ns = BEGIN_NS // WINDOW_NS * WINDOW_NS
        writer.add_windows(
            [
                Window("process:7:1", start_ns, ("user_ticks",), times[:56], ([*range(56)],)),
                Window("memory", start_ns, ("oom_kills",), times, ([2] * 56 + [3] * 3,)),
            ]
        )
    assert main(["report", "--memory", "--job", "leaks", "--json", "--db", db]) == 0
    body = json.loads(capsys.readouterr().out)
    assert main(["report", "--memory", "--job", "leaks", "--db", db]) == 0
    out = capsys.readouterr().out

    (job,) = body["jobs"]
    assert (job["killed_ns"], job["saves_left"]) == (BEGIN_NS + 56 * SECOND, 2)
    assert "for lack of memory, 16.0 s after the start of save 8" in " ".join(out.split())
    assert "Forecast" not in out


def test_a_database_without_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An older ckptprof has not measured it; other views are not shown with it, nor several databases."""
    path = recorded(tmp_path / "ckptprof.db")

    assert main(["report", "--memory", "--db", path]) == 3
    assert "no save with its memory among 3 checkpoints" in capsys.readouterr().err
    assert main(["report", "--memory", "--restarts", "--db", path]) == 2
    assert "--restarts excludes --html, --fail-on, --kind, --gpus and other views" in capsys.readouterr().err
    assert main(["report", "--memory", "--db", path, "--db", recorded(tmp_path / "other.db")]) == 2
    assert "--memory covers one node only" in capsys.readouterr().err
