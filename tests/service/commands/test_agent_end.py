"""The agent ends soon after a signal, whatever it is in the midst of."""

from __future__ import annotations

import os
import signal
import threading
from unittest.mock import MagicMock, Mock

import pytest

from ckptprof.service.commands import agent_service
from ckptprof.service.commands.agent_service import Agent, AgentOptions
from ckptprof.service.recorder.recorder import Recorder
from ckptprof.service.recorder.samplerprocess import SamplerProcess
from ckptprof.service.recorder.signals import CaughtSignal, SignalTrap
from ckptprof.service.recorder.writerthread import WriterThread


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the exit codes with which the process would have ended, without patience."""
    found: list[int] = []
    monkeypatch.setattr(os, "_exit", found.append)
    monkeypatch.setattr(agent_service, "STOP_SECONDS", 0.0)
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
    assert capsys.readouterr().err.count("exit before the end of the analysis") == 1


def test_an_agent_that_has_finished_ends_as_usual(exits: list[int]) -> None:
    """Everything was stored and closed in time."""
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


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> Agent:
    """Return an agent whose parts are placeholders, and that gets its signal when it begins to watch."""
    for name in (
        "set_title", "heap", "forbid_ptrace", "RAISED", "SignalTrap", "SamplerProcess", "truncated_saves",
        "load_pending", "ceilings_of_database", "gpu_counter", "reduce_garbage_collection", "Recorder",
    ):  # fmt: skip
        monkeypatch.setattr(agent_service, name, MagicMock())
    made = Agent(AgentOptions(db="x.db", serve=False))

    def watch(*_: object) -> None:
        made._is_watching = True
        made._on_signal()

    monkeypatch.setattr(made, "_watch", watch)
    return made


def test_a_disk_that_hangs_delays_the_end_no_longer_than_the_analysis(
    prepared: Agent, exits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One deadline holds for all that comes after the signal."""
    ended = threading.Event()
    monkeypatch.setattr(os, "_exit", lambda code: (exits.append(code), ended.set()))
    writer = Mock(spec=WriterThread)
    main = threading.current_thread()
    writer.close.side_effect = lambda *_, **__: threading.current_thread() is main and not ended.wait(120.0)
    monkeypatch.setattr(agent_service, "open_writer", lambda *_, **__: (writer, ()))
    prepared.run()

    assert exits == [1]


def test_a_recorder_that_is_behind_decides_nothing_at_the_end() -> None:
    """Its open events are in the database, and the next start decides them; on time it decides what it can."""
    watching, recorder = Agent(AgentOptions(db="x.db")), Mock(spec=Recorder)
    sampler, trap = MagicMock(spec=SamplerProcess), MagicMock(spec=SignalTrap)
    read_fd, write_fd = os.pipe()
    os.write(write_fd, b"!")
    trap.fileno.return_value = sampler.fileno.return_value = read_fd
    trap.pop_all.return_value = [CaughtSignal(signal.SIGTERM, from_terminal=False)]
    sampler.read.return_value = None
    watching._watch(sampler, recorder, trap)
    hurried = recorder.end.call_args.kwargs["hurried"]
    os.close(read_fd)
    os.close(write_fd)

    found = []
    for recorder.is_behind in (False, True):
        found.append(hurried())

    assert found == [False, True]
