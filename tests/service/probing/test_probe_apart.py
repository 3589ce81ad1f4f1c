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
from ckptprof.service.probing import apart as probing_apart
from ckptprof.service.probing.apart import HangsError, Say, Stop, apart


def test_what_comes_of_it_is_returned_and_what_it_says_is_heard(tmp_path: Path) -> None:
    """Of another process, which has ended then."""
    said: list[str] = []

    def work(say: Say) -> int:
        say("one")
        say("two")
        return os.getpid()

    pid = apart(work, tmp_path, heard=said.append, patience_seconds=PATIENCE_SECONDS)
    assert (said, pid != os.getpid()) == (["one", "two"], True)


def test_what_it_raises_is_raised(tmp_path: Path) -> None:
    """With its hint; its end by another hand is an error as well."""

    def refuse(_: Say) -> None:
        raise UsageError("no", hint="do so")

    def miss(_: Say) -> None:
        (tmp_path / "none").stat()

    def die(_: Say) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(UsageError, match="no") as told:
        apart(refuse, tmp_path, patience_seconds=PATIENCE_SECONDS)
    assert told.value.hint == "do so"
    with pytest.raises(FileNotFoundError):
        apart(miss, tmp_path, patience_seconds=PATIENCE_SECONDS)
    with pytest.raises(CkptprofError, match="ended by somebody else"):
        apart(die, tmp_path, patience_seconds=PATIENCE_SECONDS)


def test_silence_is_said_and_left_behind(tmp_path: Path) -> None:
    """However long it would go on."""
    with pytest.raises(HangsError, match=f"{tmp_path}: its file system has not answered for 0.1 s") as told:
        apart(lambda _: time.sleep(float(LIFETIME)), tmp_path, patience_seconds=0.1)
    assert "umount -f" in str(told.value.hint)


def test_a_signal_ends_it(tmp_path: Path) -> None:
    """It is told to end, and what it has by then is returned."""
    stop = Stop()

    def work(say: Say) -> str:
        told = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: told.set())
        say("ready")
        told.wait()
        return "as far as it came"

    def heard(_: str) -> None:
        stop.halt.set()

    came = apart(work, tmp_path, heard=heard, patience_seconds=PATIENCE_SECONDS, stop=stop)
    assert came == "as far as it came"


def ignore(say: Say) -> None:
    """Go on whatever is signalled."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say("ready")
    time.sleep(float(LIFETIME))


def test_an_end_has_as_long_as_a_phase(tmp_path: Path) -> None:
    """Its files are removed over a slow way, too."""
    stop = Stop()
    with pytest.raises(HangsError, match=r"has not answered for 0\.3 s"):
        apart(ignore, tmp_path, heard=lambda _: stop.halt.set(), patience_seconds=0.3, stop=stop)


def test_who_gives_up_waits_no_longer(tmp_path: Path) -> None:
    """A person who signals twice."""
    stop = Stop()

    def heard(_: str) -> None:
        stop.halt.set()
        stop.give_up.set()

    with pytest.raises(HangsError):
        apart(ignore, tmp_path, heard=heard, patience_seconds=float(LIFETIME), stop=stop)


def test_while_both_are_stopped_nobody_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a shell, with Ctrl-Z and `fg` an hour later."""
    clock = itertools.count(0, 3600.0)
    monkeypatch.setattr(probing_apart, "time", SimpleNamespace(monotonic=lambda: next(clock)))

    def work(_: Say) -> str:
        time.sleep(0.3)
        return "done"

    assert apart(work, tmp_path, patience_seconds=PATIENCE_SECONDS) == "done"
