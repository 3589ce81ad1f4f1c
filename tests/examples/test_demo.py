"""The demo: it touches nothing that it did not make, keeps what it recorded, and names commands that work."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import pty
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

import pytest
from tests.cli.recorded import recorded
from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]
DEMO = [sys.executable, str(ROOT / "examples" / "demo.py")]
SMALL = ["--size-mb", "128", "--interval", "0.8", "--saves", "2"]  # a restore of 16 MB may be taken for a copy
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
PIP = r"""#!/bin/sh
shift 3 # -m pip --disable-pip-version-check
case "$*" in
list) echo "Package Version"; echo "$INSTALLED" ;;
*--extra-index-url\ https://download.pytorch.org/whl/cpu) echo "$OFFERED" ;;
"index versions"*) echo "$NEAR" ;;
*) echo "pip $*" ;;
esac
"""


def run(*command: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run to the end; /tmp of the demo is a directory of the test's own."""
    env = {**os.environ, "TMPDIR": str(cwd), **environment}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=cwd, env=env, timeout=PATIENCE_SECONDS
    )


@pytest.mark.xdist_group("live")
@pytest.mark.slow
def test_the_commands_that_it_ends_with_work_from_anywhere(tmp_path: Path) -> None:
    """They show what was recorded; what was in the directory before is untouched."""
    home = tmp_path / "a home"
    (home / "thesis").mkdir(parents=True)
    (home / "thesis" / "chapter").write_text("years of work")
    result = run(*DEMO, *SMALL, "--work", str(home), cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr

    *_, report, show, _, _, _, page = result.stdout.splitlines()
    shown = [subprocess.run(["sh", "-c", line], capture_output=True, check=False, cwd="/") for line in (report, show)]

    assert [one.returncode for one in shown] == [0, 0]
    assert f" {shlex.split(show)[2]}, " in shown[1].stdout.decode().splitlines()[0]
    assert Path(page).read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (home / "thesis" / "chapter").read_text() == "years of work"


def test_it_ends_on_a_terminal_that_nobody_types_at(tmp_path: Path) -> None:
    """Of fewer lines than its report: no pager waits for a key."""
    database = recorded(tmp_path / "ckptprof.db")
    (tmp_path / "truth.jsonl").touch()
    pager = tmp_path / "pager"
    pager.write_text(f"#!/bin/sh\ntouch {tmp_path}/paged\ncat\n")
    pager.chmod(0o755)
    code = "import pathlib, sys; import demo; demo.tell(pathlib.Path.cwd(), sys.argv[1], pathlib.Path('truth.jsonl'))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "examples"), "PAGER": str(pager), "TERM": "xterm"}
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 12, 80, 0, 0))
    for name in ("LINES", "COLUMNS"):
        environment.pop(name, None)
    command, shown = [sys.executable, "-c", code, database], b""
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, cwd=tmp_path, env=environment) as process:
        os.close(theirs)
        with os.fdopen(ours, "rb", buffering=0) as terminal, contextlib.suppress(OSError):  # the other end is closed
            while chunk := terminal.read(65536):
                shown += chunk
        assert process.wait(timeout=PATIENCE_SECONDS) == 0

    assert not (tmp_path / "paged").exists()
    report, comparison = shown.decode().split("The training script's own log")
    assert report.count("\n") > 12
    assert "0 found, 0 missed, 3 invented" in comparison


@pytest.mark.parametrize("asked", [True, False], ids=["work", "temporary"])
def test_checkpoints_stay_only_where_work_asks_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, asked: bool
) -> None:
    """The recording always does, each time in another directory."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["demo.py", *(["--work", str(tmp_path / "new")] if asked else [])])
    spec = importlib.util.spec_from_file_location("demo", ROOT / "examples" / "demo.py")
    assert spec is not None
    assert spec.loader is not None
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    used: list[Path] = []

    def recorded(_: object, directory: Path) -> bool:
        assert list(directory.iterdir()) == []
        used.append(directory)
        (directory / "checkpoints").mkdir()
        (directory / "ckptprof.db").touch()
        return True

    monkeypatch.setattr(demo, "demo", recorded)
    for _ in range(2):
        with pytest.raises(SystemExit) as end:
            demo.main()
        assert end.value.code == 0

    assert {directory.parent for directory in used} == {tmp_path / "new" if asked else tmp_path}
    assert len(set(used)) == 2
    kept = ["checkpoints", "ckptprof.db"] if asked else ["ckptprof.db"]
    assert [sorted(path.name for path in directory.iterdir()) for directory in used] == [kept, kept]


def test_a_place_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    """It says so and leaves it as it is."""
    (tmp_path / "file").write_text("precious")

    result = run(*DEMO, "--work", str(tmp_path / "file"), cwd=tmp_path)

    assert result.returncode == 1
    assert result.stderr.startswith("no directory to work in: ")
    assert (tmp_path / "file").read_text() == "precious"


@pytest.mark.parametrize(
    ("index", "near", "offered", "says", "installs"),
    [
        ("", "2.13.0", "2.13.0+cpu, 2.13.0", "about 200 MB", f"--extra-index-url {CPU_INDEX} torch==2.13.0+cpu"),
        ("", "2.13.0+cpu, 2.13.0", "", "about 200 MB", "torch==2.13.0+cpu"),
        ("", "2.13.0", "2.13.0, 2.12.1+cpu", "about 2.6 GB", "torch==2.13.0"),
        ("https://other/cu130", "2.13.0+cpu", "", "other", "--extra-index-url https://other/cu130 torch==2.13.0"),
    ],
    ids=["offered", "near", "out-of-reach", "told-otherwise"],
)
def test_torch_comes_without_cuda_unless_told_otherwise(
    tmp_path: Path, *, index: str, near: str, offered: str, says: str, installs: str
) -> None:
    """How much will be fetched is said before."""
    pip = tmp_path / "python"
    pip.write_text(PIP)
    pip.chmod(0o755)

    result = run(str(ROOT / ".ci" / "torch"), str(pip), "2.13.0", index, cwd=tmp_path, NEAR=near, OFFERED=offered)

    told, done = result.stdout.rsplit("\n", 2)[:2]
    assert says in told
    assert done == f"pip -qq install {installs}"


@pytest.mark.parametrize("installed", ["torch   2.13.0", "torch   2.13.0+cu130"])
def test_torch_that_is_there_is_not_fetched_again(tmp_path: Path, installed: str) -> None:
    """Whichever build it is."""
    pip = tmp_path / "python"
    pip.write_text(PIP)
    pip.chmod(0o755)

    result = run(str(ROOT / ".ci" / "torch"), str(pip), "2.13.0", cwd=tmp_path, INSTALLED=installed)

    assert (result.returncode, result.stdout) == (0, "")
