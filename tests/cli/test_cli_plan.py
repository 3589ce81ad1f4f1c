"""`ckptprof plan` from the command line, with figures and with a real database."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ckptprof.cli.main import load_command, main
from ckptprof.diagnose.plan.basis import LEAST_TIMED_RESTARTS, RESTART_SECONDS
from ckptprof.model import Checkpoint, Kind, Level, Mode, Pattern, Session
from ckptprof.store.writer import StoreWriter

SECOND = 1_000_000_000
Printed = Callable[..., tuple[int, str, str]]


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Printed:
    """Return a runner of `plan` that gives exit code, stdout and stderr; no database of this machine is read."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("CKPTPROF_DB", "/nowhere/at/all.db")
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["plan", *arguments])
        return (code, *capsys.readouterr())

    return run


@pytest.fixture
def db(tmp_path: Path) -> str:
    """Return a database with six saves of one job, ten minutes apart, an older one of another, and a restore."""
    path = tmp_path / "ckptprof.db"
    end_ns = time.time_ns()
    writer = StoreWriter(path, ballast_bytes=0)
    writer.start_session(
        Session(
            uid="s", host="node-1", boot_id="b", kernel="6.1", version="0", level="poll",
            start_ns=end_ns - 7200 * SECOND, end_ns=end_ns, clean=True,
        )
    )  # fmt: skip

    def made(uid: str, job: str, kind: Kind, ago: int, stall: int | None) -> Checkpoint:
        start_ns = end_ns - ago * SECOND
        return Checkpoint(
            uid=uid, kind=kind, job=job, framework=None, step=None, ranks=8, start_ns=start_ns,
            end_ns=start_ns + 20 * SECOND, bytes=4 * 10**10, files=8, path=f"/ckpt/{uid}", writers=(),
            mode=Mode.SYNC if kind is Kind.SAVE else None, stall_ns=stall, pattern=Pattern(class_=None),
            level=Level.POLL, limitations=(), evidence=(), confidence=0.9,
        )  # fmt: skip

    saves = [made(f"save-{n}", "train", Kind.SAVE, 4000 - 600 * n, (18 + n) * SECOND) for n in range(6)]
    others = [made("old", "eval", Kind.SAVE, 7000, None), made("back", "train", Kind.RESTORE, 5000, None)]
    writer.add_checkpoints([*saves, *others])
    writer.close()
    return str(path)


def test_from_figures(printed: Printed) -> None:
    """No database is opened; the answer comes first."""
    code, out, err = printed("--parameters", "405B", "--gpus", "24000")

    assert (code, err) == (0, "")
    assert out.startswith("Save every  6 min 12 s\n")
    assert "Failure every    2 h 04 min (assumed: 49,600 h per GPU" in out
    assert "5.67 TB (worked out: 405 billion parameters of 14 bytes each" in out
    assert "1.32 PB in 233 saves, 15.3 GB/s on average" in out


def test_micron_as_published(printed: Printed) -> None:
    """5 TB on 24,000 accelerators, in the document."""
    code, out, _ = printed("--size", "5TB", "--gpus", "24,000", "--json")
    body = json.loads(out)

    assert code == 0
    assert body["basis"]["mttf_seconds"]["value"] == 124 * 60
    assert body["advice"]["interval_seconds"] == pytest.approx(372)
    assert body["rules"][0]["saves_per_day"] == 233
    assert body["traffic"]["bytes_per_day"] == 1.165e15


def test_from_a_recorded_job(db: str, printed: Printed) -> None:
    """The newest job's saves are measured, and each line says so."""
    code, out, err = printed("--db", db)

    assert (code, err) == (0, "")
    assert "Job                   train, 6 complete saves recorded" in out
    assert "Save blocks training  20.5 s (measured: median stall of 6 saves)" in out
    assert "Checkpoint size       40.0 GB (measured: median size of 6 saves)" in out
    assert "Restore               20.0 s (measured: duration of 1 restore)" in out
    assert "Today       every 10 min 00 s (measured: median between 6 saves)" in out
    assert "1 other job was left out" in out


def test_database_from_the_environment(db: str, printed: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    """CKPTPROF_DB is read where nothing is given, and does not mix into figures that are."""
    monkeypatch.setenv("CKPTPROF_DB", db)

    assert json.loads(printed("--json")[1])["job"] == "train"
    assert json.loads(printed("--json", "--size", "5TB", "--gpus", "8")[1])["job"] is None
    assert json.loads(printed("--json", "--cost", "5s", "--job", "ev*")[1])["job"] == "eval"
    assert json.loads(printed("--json", "--cost", "5s", "--db", db)[1])["basis"]["size_bytes"]["value"] == 4e10


def test_question_narrows(db: str, printed: Printed) -> None:
    """--job, --since and --limit choose as elsewhere."""
    other = json.loads(printed("--db", db, "--job", "eval", "--json")[1])
    recent = json.loads(printed("--db", db, "--since", "30m", "--json")[1])
    newest = json.loads(printed("--db", db, "--limit", "1", "--json")[1])

    assert (other["job"], other["saves"]) == ("eval", 1)
    assert other["basis"]["cost_seconds"]["text"] == "no stall observed: duration of 1 sync save"
    assert recent["saves"] == 2
    assert newest["basis"]["interval_today_seconds"] is None


def test_nothing_recorded(db: str, printed: Printed) -> None:
    """A job that is not there is 3, a database that is not there 6, and both say what to give instead."""
    code, out, err = printed("--db", db, "--job", "nobody")
    assert (code, out) == (3, "")
    assert "or give --size or --parameters, --cost and --gpus" in err

    code, out, err = printed()
    assert (code, out) == (6, "")
    assert "no database at /nowhere/at/all.db" in err
    assert "or give --size or --parameters, --cost and --gpus" in err


def test_free_space(tmp_path: Path, printed: Printed) -> None:
    """Of a real directory, or as given."""
    code, out, _ = printed("--size", "1EB", "--mttf", "3h", "--path", str(tmp_path))
    assert code == 0
    assert "free: not enough for one checkpoint" in out

    _, out, _ = printed("--size", "1TB", "--mttf", "20h", "--free", "10TB", "--keep", "3")
    assert "10.0 TB free, enough for 10 checkpoints; 3 retained and one being written need 4.00 TB: " in out


def test_steps_and_speeds(printed: Printed) -> None:
    """changlan.org's example, with the cost from the storage's speed."""
    _, out, _ = printed(
        "--size", "1TB", "--write", "100GB/s", "--mttf", "6000s", "--restart", "10m", "--step-time", "15s"
    )

    assert out.startswith("Save every  6 min 13 s, which is every 24 steps\n")
    assert "10.0 s (worked out: a sync save at the speed given with --write)" in out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--cost", "3h", "--mttf", "2h"], "a save blocks training for 10,800 s, but failures are only 7,200 s apart"),
        (["--cost", "30s"], "the failure rate is unknown"),
        (["--cost", "-30s", "--mttf", "3h"], "--cost must be more than 0"),
        (["--cost", "0s", "--mttf", "3h"], "--cost must be more than 0"),
        (["--cost", "nan s", "--mttf", "3h"], "--cost is not a number"),
        (["--cost", "30", "--mttf", "3h"], "--cost '30' has no unit"),
        (["--size", "0TB", "--mttf", "3h"], "--size must be more than 0"),
        (["--size", "405B", "--mttf", "3h"], "--size '405B' would be 405 bytes"),
        (["--size", "5 elephants", "--mttf", "3h"], "'elephants' is not a unit of this option"),
        (["--size", "\x1b[2J", "--mttf", "3h"], "is not a number with a unit"),
        (["--gpus", "-5"], "--gpus must be more than 0"),
        (["--gpus", "0", "--cost", "1s"], "--gpus must be more than 0"),
        (["--gpus", "1e400", "--cost", "1s"], "--gpus '1e400' is not a number"),
        (["--mttf", "1e400h", "--cost", "1s"], "--mttf inf is too large"),
        (["--size", "1TB", "--parameters", "1B", "--mttf", "3h"], "--size and --parameters exclude each other"),
        (["--size", "1TB", "--mttf", "3h", "--path", "/", "--free", "1TB"], "--path and --free both"),
        (["--size", "1TB", "--mttf", "3h", "--path", "/nowhere/at/all"], "No such file or directory"),
        (["--size", "1TB", "--mttf", "3h", "--path", "a\0b"], "null"),
        (["--nonsense"], "no such option"),
    ],
)
def test_refused(arguments: list[str], reason: str, printed: Printed) -> None:
    """A usage error each: 2, one line with the reason, one with what to do, nothing on stdout."""
    code, out, err = printed(*arguments)

    assert (code, out) == (2, "")
    assert reason in err
    assert err.startswith("ckptprof: ")
    assert "\nhint: " in err
    assert len(err.splitlines()) == 2
    assert "\x1b" not in err


def test_each_documented_default_is_of_an_option() -> None:
    """docs/plan.md has the default of options that there are; `--help` and the manual page have all of them."""
    text = (Path(__file__).resolve().parents[2] / "docs" / "plan.md").read_text(encoding="utf-8")
    options = {option for parameter in load_command("plan").params for option in parameter.opts}
    rows = re.findall(r"^\| `(--[a-z-]+)", text, re.MULTILINE)

    assert len(rows) > 10
    assert set(rows) - options == set()


def test_help_is_cheap() -> None:
    """It opens no database, and imports nothing that would be slow."""
    code = (
        "import sys\nfrom ckptprof.cli.main import main\nmain(['plan', '--help'])\n"
        "sys.exit(len({'sqlalchemy', 'rich', 'psutil'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert "--mttf-per-gpu" in done.stdout


def test_the_help_of_restart_has_its_default(printed: Printed) -> None:
    """As many restarts as are needed, else the assumed time."""
    words = " ".join(printed("--help")[1].split())
    number, minutes = ("two", "three")[LEAST_TIMED_RESTARTS - 2], RESTART_SECONDS / 60
    assert f"without the restore. Default: as measured on {number} or more restarts, else {minutes:g}m." in words
