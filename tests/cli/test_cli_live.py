"""`ckptprof live`, as it is typed: in a pipe, and on a terminal that it leaves as it was."""

from __future__ import annotations

import fcntl
import gc
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.recorded import recorded
from tests.patience import PATIENCE_SECONDS, wait_until
from tests.report.schemas import validate

from ckptprof.cli.main import main
from ckptprof.cli.shared.screen import keys_of
from ckptprof.report.live.state import MAX_LAST
from ckptprof.service.live.following import LiveReader
from ckptprof.store.reader import StoreReader

PROGRAM = Path(sys.executable).with_name("ckptprof")


@pytest.fixture
def db(tmp_path: Path) -> str:
    """Return a database of three checkpoints, one of a hostile name."""
    return recorded(tmp_path / "ckptprof.db")


@pytest.mark.parametrize("options", [[], ["--once"]])
def test_a_pipe_gets_one_look(options: list[str], db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Without escape codes and without keys; the newest checkpoint comes first."""
    assert main(["live", *options, "--db", db]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:4] == ["ckptprof", "live", "on", "node-1"]
    assert "no recorder is running for this database" in lines[1]
    header = next(number for number, line in enumerate(lines) if line.split()[:1] == ["ID"])
    assert [line.split()[0] for line in lines[header + 1 : header + 4]] == ["3", "2", "1"]
    assert "\x1b" not in "".join(lines)
    assert "quit" not in lines[-1]


def test_who_looks_for_days_collects_what_is_left(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The collector of cycles rests for one answer, not for as long as somebody watches."""
    collecting = []
    state = LiveReader.state
    monkeypatch.setattr(
        LiveReader, "state", lambda own, at_ns: (collecting.append(gc.isenabled()), state(own, at_ns))[1]
    )

    assert main(["live", "--once", "--db", db]) == 0
    assert collecting == [True]


def test_json_is_a_document_of_the_schema(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One look, with the last checkpoints as `list --json` tells them."""
    assert main(["live", "--json", "--db", db]) == 0

    told = json.loads(capsys.readouterr().out)
    validate("live", told)
    assert (told["host"], told["underway"]) == ("node-1", [])
    assert [one["id"] for one in told["last"]] == [3, 2, 1]


@pytest.mark.parametrize("option", ["--once", "--json"])
def test_a_closed_pipe_is_no_error(option: str, db: str) -> None:
    """As of `| head`: the exit code is that of a closed pipe, and nothing is told."""
    read, write = os.pipe()
    os.close(read)
    ran = subprocess.run(
        [sys.executable, str(PROGRAM), "live", option, "--db", db], stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)

    assert (ran.returncode, ran.stderr) == (141, b"")


def test_no_more_is_read_than_a_screen_holds(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many checkpoints were recorded."""
    asked: list[int | None] = []
    report = StoreReader.report
    monkeypatch.setattr(StoreReader, "report", lambda own, query: (asked.append(query.limit), report(own, query))[1])

    assert main(["live", "--once", "--db", db]) == 0
    assert asked == [MAX_LAST]


def test_without_a_database_it_says_where_to_get_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As every command that asks."""
    assert main(["live", "--db", str(tmp_path / "none.db")]) != 0

    assert "no database" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"q", ["quit"]),
        (b"\x1b[A\x1bOBjk\r", ["up", "down", "down", "up", "enter"]),
        (b"\x1b[5~ ", ["page up", "page down"]),
        (b"sf", ["sort", "freeze"]),
        (b"\x1b[1;5Cx\xff", []),
    ],
)
def test_keys_are_told_apart(data: bytes, keys: list[str]) -> None:
    """What is none of ours is passed over."""
    assert keys_of(data) == keys


class Terminal:
    """A terminal of 80x24, with `ckptprof live` on it."""

    def __init__(self, db: str, *options: str) -> None:
        """Start it."""
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        self.shown = b""
        environment = {**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8", "PYTHONUTF8": "1"}
        for name in ("LINES", "COLUMNS", "CLICOLOR_FORCE"):
            environment.pop(name, None)
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), "live", "--db", db, "--interval", "0.2", *options],
            stdin=self.slave, stdout=self.slave, stderr=self.slave, env=environment,
            preexec_fn=os.setpgrp,  # noqa: PLW1509 # `process_group` is of Python 3.11
        )  # fmt: skip

    def read(self) -> bytes:
        """Return all that was shown so far."""
        while select.select([self.master], [], [], 0)[0]:
            self.shown += os.read(self.master, 65536)
        return self.shown

    def awaits(self, text: str) -> None:
        """Wait until a text is shown after what was asked for before; fail at once if nothing can show it any more."""
        wait_until(lambda: self._shows(text.encode()), lambda: f"no {text!r} in {self.shown!r}")
        self.shown = b""

    def _shows(self, text: bytes) -> bool:
        code = self.process.poll()  # before the last of it is read
        is_shown = text in self.read()
        assert is_shown or code is None, f"no {text!r} before it ended with {code}: {self.shown!r}"
        return is_shown

    def press(self, data: bytes) -> None:
        """Press keys."""
        os.write(self.master, data)

    def resize(self, columns: int, lines: int) -> None:
        """Make it another size, and say so as a terminal does."""
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("4H", lines, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)

    def ended(self) -> int:
        """Return the exit code; what comes until then is read, or it would wait for room."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.process.poll() is None and time.monotonic() < deadline:
            select.select([self.master], [], [], 0.02)
            self.read()
        return self.process.wait(1)

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def terminal(db: str) -> Iterator[Terminal]:
    """Return one that shows its first screen."""
    made = Terminal(db, "--no-color")
    made.awaits("q quit")
    yield made
    made.close()


def test_a_screen_that_died_is_not_waited_for(tmp_path: Path) -> None:
    """Its error is the failure, at once: with a fault in a frame these tests once stood still for nine minutes."""
    made = Terminal(str(tmp_path / "none.db"))
    try:
        with pytest.raises(AssertionError, match=r"(?s)ended with 6: .*no database"):
            made.awaits("q quit")
    finally:
        made.close()


@pytest.mark.parametrize(("how", "code"), [("q", 0), ("SIGTERM", 143), ("SIGHUP", 129), ("SIGINT", 130)])
def test_the_terminal_is_whole_afterwards(how: str, code: int, terminal: Terminal) -> None:
    """Its settings are those of before, its cursor is back, and the other screen is left: by whatever it ends."""
    assert termios.tcgetattr(terminal.slave) != terminal.before
    if how == "q":
        terminal.press(b"q")
    else:
        terminal.process.send_signal(getattr(signal, how))

    assert terminal.ended() == code
    assert termios.tcgetattr(terminal.slave) == terminal.before
    assert terminal.read().rstrip().endswith((b"\x1b[?25h\x1b[?1049l", b"ckptprof: interrupted"))


def test_it_stops_and_goes_on(terminal: Terminal) -> None:
    """By Ctrl-Z: the terminal is the shell's meanwhile, and the screen comes again."""
    terminal.process.send_signal(signal.SIGTSTP)
    terminal.awaits("\x1b[?1049l")
    wait_until(lambda: Path(f"/proc/{terminal.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    assert termios.tcgetattr(terminal.slave) == terminal.before

    terminal.process.send_signal(signal.SIGCONT)
    terminal.awaits("\x1b[?1049h")
    terminal.awaits("q quit")
    terminal.press(b"q")
    assert terminal.ended() == 0


def test_it_follows_the_size_of_the_terminal(terminal: Terminal) -> None:
    """Lines are as long as there is room from then on."""
    terminal.resize(200, 10)
    terminal.awaits("PATTERN")
    terminal.resize(20, 5)
    terminal.read()
    terminal.press(b"q")

    assert terminal.ended() == 0


def test_what_was_asked_of_the_screen_stands_there(terminal: Terminal) -> None:
    """Sorted, frozen, and as before."""
    terminal.press(b"s")
    terminal.awaits("sorted by duration")
    terminal.press(b"fs")
    terminal.awaits("frozen: f resumes")
    terminal.press(b"f")
    terminal.read()
    terminal.press(b"q")

    assert terminal.ended() == 0


def test_the_chosen_one_is_shown(terminal: Terminal, db: str) -> None:
    """Down and Enter show the second newest, Enter goes back."""
    with StoreReader(db) as reader:
        assert reader.checkpoint(2) is not None
    terminal.press(b"j")
    terminal.awaits("> ")
    terminal.press(b"\r")
    terminal.awaits("Save 2, train")
    terminal.press(b"\r")
    terminal.awaits("q quit")
    terminal.press(b"q")

    assert terminal.ended() == 0
