"""The agent ends soon after a signal, whatever it is in the midst of."""

from __future__ import annotations

import os
import signal
import threading
from unittest.mock import Mock

import pytest

from ckptprof.service.commands import agent_service
from ckptprof.service.commands.agent_service import Agent, AgentOptions
from ckptprof.service.recorder.signals import SignalTrap
from ckptprof.service.recorder.writerthread import WriterThread


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the exit codes with which the process would have ended, without patience."""
    found: list[int] = []
    monkeypatch.setattr(os, "_exit", found.append)
    monkeypatch.setattr(agent_service, "GIVE_UP_SECONDS", 0.0)
    return found


def agent(*, stores: bool) -> Agent:
    """Return one that watches, and whose store takes what waits, or does not."""
    made = Agent(AgentOptions(db="x.db"))
    made._is_watching, made._writer = True, Mock(spec=WriterThread, **{"close.return_value": stores})
    return made


def heard(watching: Agent) -> None:
    """Let it hear a signal twice, and wait for what it begins at that."""
    before = set(threading.enumerate())
    for _ in range(2):
        watching._on_signal()
    for thread in set(threading.enumerate()) - before:
        thread.join()


@pytest.mark.parametrize("stores", [True, False])
def test_what_takes_too_long_to_judge_is_left_for_the_next_start(
    exits: list[int], capsys: pytest.CaptureFixture[str], *, stores: bool
) -> None:
    """What waits is stored, that is said once, and the exit code tells whether all of it was."""
    heard(agent(stores=stores))

    assert exits == [0 if stores else 1]
    assert capsys.readouterr().err.count("exit during analysis") == 1


def test_who_has_judged_everything_ends_as_usual(exits: list[int]) -> None:
    """To store it may take longer."""
    watching = agent(stores=True)
    watching._has_finished.set()
    heard(watching)

    assert exits == []


def test_before_it_watches_nothing_is_given_up(exits: list[int]) -> None:
    """A database that is brought up to date is not left in the midst of that."""
    watching = agent(stores=True)
    watching._is_watching = False
    heard(watching)

    assert exits == []


def test_a_signal_is_heard_while_the_main_thread_does_something_else() -> None:
    """It is told by the thread that collects signals, and waits for the main one all the same."""
    told = threading.Event()
    trap = SignalTrap({signal.SIGUSR1}, told.set)
    try:
        signal.pthread_kill(trap._thread.ident or 0, signal.SIGUSR1)

        assert told.wait(60.0)
        assert [caught.number for caught in trap.pop_all()] == [signal.SIGUSR1]
    finally:
        trap.close()
