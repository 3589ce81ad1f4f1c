"""What feeds the watchdog: a slow loop is fed, a dead one is not; on real threads and a real socket."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.patience import PATIENCE_SECONDS, wait_until

from ckptprof.service.commands.systemd import COMPUTING_SHARE, Notifier, WatchdogFeeder, stalled_seconds, thread_times

LIMIT_SECONDS = 0.5


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """Return systemd's end of the socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(0)
        yield listener


def told(manager: socket.socket) -> list[bytes]:
    """Return what systemd was told since it was last asked."""
    messages = []
    with contextlib.suppress(BlockingIOError):
        while True:
            messages.append(manager.recv(100))
    return messages


def heard(manager: socket.socket, loop: Callable[[WatchdogFeeder], None], said: list[str]) -> list[bytes]:
    """Run a loop under a pulse that says this; return what was told to systemd."""
    environ = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": str(int(LIMIT_SECONDS * 1e6))}
    pulse = WatchdogFeeder(Notifier(environ), said.append, min_limit_seconds=LIMIT_SECONDS)

    def run() -> None:
        pulse.start()
        loop(pulse)
        pulse.stop()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return told(manager)


def test_a_loop_that_waits_for_ever_is_given_up_and_its_place_is_said(manager: socket.socket) -> None:
    """As at a lock that nobody lets go of."""
    said: list[str] = []

    def hang(_: WatchdogFeeder) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while not said and time.monotonic() < end:
            time.sleep(LIMIT_SECONDS)

    messages = heard(manager, hang, said)

    assert messages[-1] == b"WATCHDOG=trigger"
    assert messages.count(b"WATCHDOG=trigger") == 1
    assert len(said) == 1
    assert "stuck in hang (test_pulse.py, line" in said[0]


def test_a_loop_that_steps_is_fed(manager: socket.socket) -> None:
    """However long each step takes, below the limit."""
    said: list[str] = []
    messages: list[bytes] = []

    def step(pulse: WatchdogFeeder) -> None:
        def fed() -> bool:
            time.sleep(LIMIT_SECONDS / 2)
            pulse.step()
            messages.extend(told(manager))
            return len(messages) >= 8

        wait_until(fed)

    messages += heard(manager, step, said)

    assert set(messages) == {b"WATCHDOG=1"}
    assert said == []


def test_a_long_frame_is_slow_and_not_dead(manager: socket.socket) -> None:
    """Computing for twice the limit without a step, as at a save of very many files."""

    def compute(pulse: WatchdogFeeder) -> None:
        deadline = time.thread_time() + 2 * LIMIT_SECONDS
        while time.thread_time() < deadline:
            pass
        pulse.step()

    said: list[str] = []
    messages = heard(manager, compute, said)

    assert set(messages) == {b"WATCHDOG=1"}
    assert said == []


@pytest.mark.parametrize(
    ("ran", "waited", "counted"),
    [(0.0, 0.0, 1.0), (0.0, 1.0, 0.0), (1.0, 0.0, COMPUTING_SHARE), (0.1, 0.9, COMPUTING_SHARE * 0.1), (0.0, 3.0, 0.0)],
)
def test_who_waits_for_a_cpu_is_not_dead(ran: float, waited: float, counted: float) -> None:
    """Of a second: what no thread of the process waited for a CPU."""
    before = {1: (5, 5)}
    after = {1: (5 + int(ran * 1e9), 5 + int(waited * 1e9))}

    assert stalled_seconds(1.0, before, after) == pytest.approx(counted, abs=1e-6)


def test_the_kernel_tells_the_times_of_each_thread() -> None:
    """What this thread computes is counted for it."""
    before = thread_times()
    deadline = time.thread_time() + 0.2
    while time.thread_time() < deadline:
        pass
    me = threading.get_native_id()

    assert thread_times()[me][0] - before[me][0] > 1e8
