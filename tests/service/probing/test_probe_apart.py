"""A directory is touched in a process of its own: what comes of it, and what if its file system does not answer."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.patience import LIFETIME, PATIENCE_SECONDS

from ckptprof.errors import CkptprofError, UsageError
from ckptprof.service.probing import isolated as probing_apart
from ckptprof.service.probing.isolated import NoAnswerError, OnReport, StopEvents, run_isolated


def test_what_comes_of_it_is_returned_and_what_it_says_is_heard(tmp_path: Path) -> None:
    """Of another process, which has ended then."""
    said: list[str] = []

    def work(say: OnReport) -> int:
        say("one")
        say("two")
        return os.getpid()

    pid = run_isolated(work, tmp_path, on_report=said.append, patience_seconds=PATIENCE_SECONDS)
    assert (said, pid != os.getpid()) == (["one", "two"], True)


def test_what_it_raises_is_raised(tmp_path: Path) -> None:
    """With its hint; its end by another hand is an error as well."""

    def refuse(_: OnReport) -> None:
        raise UsageError("no", hint="do so")

    def miss(_: OnReport) -> None:
        (tmp_path / "none").stat()

    def die(_: OnReport) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(UsageError, match="no") as told:
        run_isolated(refuse, tmp_path, patience_seconds=PATIENCE_SECONDS)
    assert told.value.hint == "do so"
    with pytest.raises(FileNotFoundError):
        run_isolated(miss, tmp_path, patience_seconds=PATIENCE_SECONDS)
    with pytest.raises(CkptprofError, match="probing process was killed"):
        run_isolated(die, tmp_path, patience_seconds=PATIENCE_SECONDS)


def test_a_file_system_that_hangs_is_said_and_left_behind(tmp_path: Path) -> None:
    """However long it would go on: its process sleeps where no signal reaches it (here as the parent of a vfork)."""
    os.mkfifo(tmp_path / "gate")
    opening = [(os.POSIX_SPAWN_OPEN, 0, str(tmp_path / "gate"), os.O_RDONLY, 0)]

    def sleep(_: OnReport) -> None:
        os.posix_spawn("/bin/true", ["true"], {}, file_actions=opening)

    with pytest.raises(NoAnswerError, match=f"{tmp_path}: its file system has not answered for 2 s") as told:
        run_isolated(sleep, tmp_path, patience_seconds=2.0)
    (tmp_path / "gate").write_text("")
    assert (told.value.hangs, told.value.hint) == (True, probing_apart.END_THE_MOUNT)


def test_a_host_that_is_too_busy_is_not_called_a_hanging_mount(tmp_path: Path) -> None:
    """A process that does not answer and could: it waits for a CPU, or for a disk that others use."""
    with pytest.raises(NoAnswerError, match=f"{tmp_path}: not read within 0.1 s: this host is too busy") as told:
        run_isolated(lambda _: time.sleep(float(LIFETIME)), tmp_path, patience_seconds=0.1)
    assert (told.value.hangs, "umount" in str(told.value.hint)) == (False, False)


def test_a_signal_ends_it(tmp_path: Path) -> None:
    """It is told to end, and what it has by then is returned."""
    stop = StopEvents()

    def work(say: OnReport) -> str:
        told = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: told.set())
        say("ready")
        told.wait()
        return "as far as it came"

    def heard(_: str) -> None:
        stop.halt.set()

    came = run_isolated(work, tmp_path, on_report=heard, patience_seconds=PATIENCE_SECONDS, stop=stop)
    assert came == "as far as it came"


def ignore(say: OnReport) -> None:
    """Go on whatever is signalled."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say("ready")
    time.sleep(float(LIFETIME))


def test_an_end_has_as_long_as_a_phase(tmp_path: Path) -> None:
    """Its files are removed over a slow way, too."""
    stop = StopEvents()
    with pytest.raises(NoAnswerError, match=r"not read within 0\.3 s"):
        run_isolated(ignore, tmp_path, on_report=lambda _: stop.halt.set(), patience_seconds=0.3, stop=stop)


def test_who_gives_up_waits_no_longer(tmp_path: Path) -> None:
    """A person who signals twice."""
    stop = StopEvents()

    def heard(_: str) -> None:
        stop.halt.set()
        stop.give_up.set()

    with pytest.raises(NoAnswerError):
        run_isolated(ignore, tmp_path, on_report=heard, patience_seconds=float(LIFETIME), stop=stop)


def test_while_both_are_stopped_nobody_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a shell, with Ctrl-Z and `fg` an hour later."""
    clock = itertools.count(0, 3600.0)
    monkeypatch.setattr(probing_apart, "time", SimpleNamespace(monotonic=lambda: next(clock)))

    def work(_: OnReport) -> str:
        time.sleep(0.3)
        return "done"

    assert run_isolated(work, tmp_path, patience_seconds=PATIENCE_SECONDS) == "done"
