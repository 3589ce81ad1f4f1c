"""Nothing is wider than the terminal, and what is longer goes through a pager: on real recordings."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckptprof.cli.main import main
from ckptprof.report import service
from ckptprof.report.clean import width as cells

STREAMS = Path(__file__).parents[1] / "fixtures" / "streams"
WIDTHS = (40, 60, 80, 200)
CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COMMAND = [str(Path(sys.executable).with_name("ckptprof"))]
JOB = """
import time
import numpy
state = numpy.random.rand(4 << 20)
for step in (1, 2):
    time.sleep(1)
    numpy.savez(f"ckpt_{step:04}.npz", state=state)
"""


class Terminal(io.TextIOWrapper):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a database of real recordings: saves with verdicts, copies under further names, a restore, a copy."""
    path = str(tmp_path_factory.mktemp("recorded") / "recorded.db")
    for name in ("framework-lightning-fit-moved.trace", "fault-straggler.trace", "work-cp-a-checkpoint"):
        assert main(["replay", str(STREAMS / f"{name}.ckptrec.gz"), "--db", path]) in (0, 3)
    return path


def told(*arguments: str, columns: int) -> str:
    """Return what a command prints on a terminal of so many columns."""
    raw = io.BytesIO()
    stream = Terminal(raw, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patched, contextlib.redirect_stdout(stream):
        patched.setenv("COLUMNS", str(columns))
        assert main(arguments) in (0, 4)
    stream.flush()
    return raw.getvalue().decode()


def widest(text: str) -> str:
    """Return the widest line."""
    return max(CODES.sub("", text).splitlines(), key=cells)


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize(
    "arguments",
    [
        ("report",), ("report", "--kind", "copy"), ("list",), ("show", "1"), ("show", "1", "--all"),
        ("show", "4", "--all"), ("show", "5", "--all"), ("diff", "lightning*", "fault*"), ("plan", "--mttf", "3h"),
        ("doctor",), ("doctor", "--all"),
    ],
)  # fmt: skip
def test_a_command_keeps_to_the_terminal(arguments: tuple[str, ...], columns: int, db: str) -> None:
    """Each that reads a database."""
    text = told(*arguments, "--db", db, columns=columns)

    assert cells(widest(text)) <= columns, widest(text)


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize(
    "arguments",
    [
        ("replay", str(STREAMS / "killed-torch-save.ckptrec.gz")),
        ("plan", "--parameters", "405B", "--gpus", "24000", "--cost", "30s", "--path", "/", "--keep", "3"),
    ],
)
def test_a_command_without_a_database_does_so_too(arguments: tuple[str, ...], columns: int) -> None:
    """A recording, and a plan of given figures."""
    text = told(*arguments, columns=columns)

    assert cells(widest(text)) <= columns, widest(text)


def test_a_ceiling_does_so_too(tmp_path: Path) -> None:
    """A real probe, in the narrowest."""
    options = ("--size", "32M", "--seconds", "0.05", "--db", str(tmp_path / "x.db"))
    text = told("ceiling", str(tmp_path), *options, columns=40)

    assert cells(widest(text)) <= 40, widest(text)


@pytest.mark.parametrize("columns", WIDTHS)
def test_the_standing_of_the_service_does_so_too(columns: int) -> None:
    """With everything that there may be to say."""
    standing = service.ServiceStatus(
        installed=True, enabled=True, active=True, state="active", status="watching at poll level", user=False,
        unit="/etc/systemd/system/ckptprof.service", runs="/opt/ckptprof/bin/ckptprof agent --level auto",
        from_here=False, outdated=True, database="/var/lib/ckptprof/ckptprof.db", readable=False,
    )  # fmt: skip
    for action, steps in (("status", ()), ("install", ("write /etc/systemd/system/ckptprof.service",))):
        text = service.render(service.ActionResult(action, dry_run=True, steps=steps, service=standing), width=columns)

        assert cells(widest(text)) <= columns


@pytest.mark.xdist_group("live")  # what polling sees of a short job depends on the host
def test_the_summary_of_a_run_does_so_too(tmp_path: Path) -> None:
    """At its end, on stderr."""
    done = subprocess.run(
        [*COMMAND, "run", "--level", "poll", "--db", "x.db", "--", sys.executable, "-c", JOB],
        cwd=tmp_path, env={**os.environ, "COLUMNS": "40"}, capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert "Saves " in done.stderr
    assert "ckpt_0002.npz" in done.stderr or "Paths are in" in done.stderr
    assert cells(widest(done.stderr)) <= 40, widest(done.stderr)


def test_list_is_made_of_tabs_in_a_pipe(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With all fields, however narrow a terminal there is."""
    assert main(["list", "--db", db]) == 0

    assert {line.count("\t") for line in capsys.readouterr().out.splitlines()} == {13}


class Typist:
    """Somebody at a terminal."""

    def __init__(self, folder: Path) -> None:
        """Let PAGER be a program that keeps what it got."""
        self.kept = folder / "kept"
        program = folder / "pager"
        program.write_text(f'#!/bin/sh\necho "$LESS" > {folder}/less\ntee {self.kept}\n')
        program.chmod(0o755)
        self.environment = {**os.environ, "PAGER": f"{program} -x", "TERM": "xterm", "LINES": "24", "COLUMNS": "80"}
        self.environment.pop("LESS", None)

    def type(self, *arguments: str, **environment: str) -> str:
        """Return what is on the terminal after a command."""
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            [*COMMAND, *arguments], stdin=theirs, stdout=theirs, env={**self.environment, **environment}
        ) as process:
            os.close(theirs)
            text = b"".join(_read(ours)).decode()
        os.close(ours)
        assert process.returncode == 0
        return CODES.sub("", text).replace("\r\n", "\n")

    @property
    def paged(self) -> str | None:
        """What the pager got since it was last asked; None if it was not started."""
        if not self.kept.exists():
            return None
        text = self.kept.read_text(encoding="utf-8")
        self.kept.unlink()
        return CODES.sub("", text)


def _read(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            raw = os.read(descriptor, 65536)
        except OSError:  # the other end is closed
            return
        yield raw


def test_what_is_longer_than_the_terminal_is_paged(tmp_path: Path, db: str) -> None:
    """By PAGER, with its options; what fits is not, nor is anything with --no-pager or PAGER=cat."""
    person = Typist(tmp_path)
    whole = person.type("show", "1", "--all", "--db", db)
    paged = person.paged

    assert paged == whole
    assert whole.count("Limit ") == 1  # a pager begins at the top
    assert (tmp_path / "less").read_text() == "FRX\n"
    assert person.type("report", "--db", db).startswith("Answer ")
    assert (person.paged or "").startswith("Answer ")
    short = person.type("show", "1", "--db", db, LINES="40")
    assert person.paged is None
    assert short.count("Limit ") == 1
    for environment, option in (
        ({}, "--no-pager"),
        ({"PAGER": "cat"}, "--all"),
        ({"PAGER": "/nowhere"}, "--all"),
        ({"PAGER": "'"}, "--all"),
    ):
        plain = person.type("show", "1", "--all", option, "--db", db, **environment)
        assert person.paged is None
        assert plain.count("Limit ") == 2  # the first lines have scrolled away


def test_a_pager_that_is_left_early_is_no_error(tmp_path: Path, db: str) -> None:
    """Whatever was not read."""
    person = Typist(tmp_path)

    assert person.type("report", "--db", db, PAGER="true", LINES="3") == ""


def test_nothing_is_paged_in_a_pipe(tmp_path: Path, db: str) -> None:
    """Plain text, with the first lines again at its end."""
    person = Typist(tmp_path)
    done = subprocess.run(
        [*COMMAND, "show", "1", "--all", "--db", db], env=person.environment, capture_output=True, text=True, check=True
    )

    assert person.paged is None
    assert done.stdout.count("Limit ") == 2
