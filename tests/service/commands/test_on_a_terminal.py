"""`ckptprof live` on a real terminal, driven in tmux beside a real job."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest
from livecommand import CKPTPROF, Ckptprof
from tests.patience import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.programs("tmux")

# The save goes on until the test has seen it, and then the job, until all that it waits for was seen
JOB = """
import pathlib, sys, time, numpy

def gate(name):
    return pathlib.Path(name).exists()

with open("ckpt_5.npy", "wb") as stream:
    numpy.save(stream, numpy.ones(8_000_000))
    while not gate("go"):
        stream.write(bytes(1 << 18))
        time.sleep(0.05)
while not gate("end"):
    time.sleep(0.05)
sys.exit(7)
"""


class Terminals:
    """A tmux of its own: each window is a terminal of 100x30 with a shell."""

    def __init__(self, ckptprof: Ckptprof) -> None:
        """Start it, with the first one."""
        self._work = ckptprof.work
        self._socket = str(ckptprof.work / "tmux")
        self._environment = {**ckptprof.environment, "LC_ALL": "C.UTF-8", "PYTHONUTF8": "1", "PS1": "$ "}
        for name in ("TMUX", "COLUMNS", "LINES"):
            self._environment.pop(name, None)
        self._call("-f", os.devnull, "new-session", "-d", "-s", "0", "-x", "100", "-y", "30", "sh")

    def _call(self, *words: str) -> str:
        return subprocess.run(
            ["tmux", "-S", self._socket, *words], cwd=self._work, env=self._environment, check=True,
            capture_output=True, text=True, timeout=PATIENCE_SECONDS,
        ).stdout  # fmt: skip

    def another(self) -> str:
        """Return another terminal."""
        return self._call("new-window", "-d", "-P", "-F", "#{window_index}", "sh").strip()

    def type(self, *words: str, into: str = "0") -> None:
        """Type a command line, with what tells its end and the state of the terminal."""
        stty = "stty -a >before; {}; echo ended $?; stty -a >after; cmp before after && echo whole"
        self._call("send-keys", "-t", f"0:{into}", "-l", stty.format(shlex.join(words)))
        self.press("Enter", into=into)

    def press(self, *keys: str, into: str = "0") -> None:
        """Press keys."""
        self._call("send-keys", "-t", f"0:{into}", *keys)

    def shown(self, of: str = "0") -> str:
        """Return what stands there."""
        return self._call("capture-pane", "-p", "-t", f"0:{of}")

    def awaits(self, *texts: str, of: str = "0") -> str:
        """Wait until all of these stand there; return all that does."""
        return str(
            wait_until(lambda: (found := self.shown(of)) and all(text in found for text in texts) and found,
                       lambda: f"no {texts} in {self.shown(of)}")
        )  # fmt: skip

    def is_whole(self, of: str = "0") -> bool:
        """Return whether the terminal is as a shell wants it."""
        return self._call("display", "-p", "-t", f"0:{of}", "#{alternate_on} #{cursor_flag}").strip() == "0 1"

    def process(self, word: str, of: str = "0") -> psutil.Process:
        """Return the ckptprof in a terminal that was started with a word."""
        pid = int(self._call("display", "-p", "-t", f"0:{of}", "#{pane_pid}"))
        return next(one for one in psutil.Process(pid).children() if word in one.cmdline())

    def close(self) -> None:
        """End all of it."""
        self._call("kill-server")


@pytest.fixture
def terminals(ckptprof: Ckptprof) -> Iterator[Terminals]:
    """Return one."""
    made = Terminals(ckptprof)
    yield made
    made.close()


def test_viewers_come_and_go_beside_a_job(ckptprof: Ckptprof, terminals: Terminals) -> None:
    """A save is on the screen while it is written, also on a second one; the first is killed, the second shows it."""
    job = ckptprof.start("run", "--db", str(ckptprof.database), "--", sys.executable, "-c", JOB)
    wait_until(ckptprof.database.exists)
    words = (*CKPTPROF, "live", "--no-color", "--db", str(ckptprof.database))
    terminals.type(*words)
    second = terminals.another()
    terminals.type(*words, into=second)
    for one in ("0", second):
        terminals.awaits("level", "SO FAR", "save", of=one)

    terminals.process("live").terminate()
    terminals.awaits("ended 143", "whole")
    assert terminals.is_whole()

    (ckptprof.work / "go").touch()
    terminals.awaits("no save or restore in progress", "LIMIT", of=second)
    terminals.press("Enter", into=second)
    terminals.awaits("Save 1", of=second)
    terminals.press("Enter", "q", into=second)
    terminals.awaits("ended 0", "whole", of=second)
    assert terminals.is_whole(second)
    (ckptprof.work / "end").touch()
    assert job.wait(PATIENCE_SECONDS) == 7


def test_a_stop_gives_the_terminal_to_the_shell(ckptprof: Ckptprof, terminals: Terminals) -> None:
    """By Ctrl-Z; `fg` brings the screen back."""
    done = ckptprof.call("run", "-q", "--db", str(ckptprof.database), "--", "true")
    assert done.returncode == 0
    terminals.press("exec bash --norc --noprofile -i", "Enter")
    terminals.type(*CKPTPROF, "live", "--db", str(ckptprof.database))
    terminals.awaits("ckptprof live")

    terminals.press("C-z")
    terminals.awaits("Stopped")
    assert terminals.is_whole()
    terminals.press("fg", "Enter")
    terminals.awaits("ckptprof live", "q quit")
    terminals.press("q")
    wait_until(terminals.is_whole)
