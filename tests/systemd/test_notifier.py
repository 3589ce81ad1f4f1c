"""The notify protocol against a real datagram socket."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.patience import PATIENCE_SECONDS

from ckptprof.service.commands import systemd
from ckptprof.service.commands.systemd import Notifier


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """Return a socket as systemd has one."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.settimeout(PATIENCE_SECONDS)
        yield sock


def environ(manager: socket.socket, **more: str) -> dict[str, str]:
    """Return the environment that systemd gives a service."""
    return {"NOTIFY_SOCKET": manager.getsockname(), **more}


def test_ready_status_and_stopping_are_heard(manager: socket.socket) -> None:
    """Each message is one datagram of assignments."""
    notifier = Notifier(environ(manager))
    assert notifier.is_active
    assert notifier.ready("watching")
    assert manager.recv(4096) == b"READY=1\nSTATUS=watching"
    assert notifier.status("2 jobs")
    assert manager.recv(4096) == b"STATUS=2 jobs"
    assert notifier.stopping()
    assert manager.recv(4096) == b"STOPPING=1"


def test_the_same_status_is_sent_once(manager: socket.socket) -> None:
    """A status that did not change costs no system call."""
    notifier = Notifier(environ(manager))
    assert notifier.status("idle")
    assert not notifier.status("idle")
    assert notifier.status("busy")
    assert (manager.recv(4096), manager.recv(4096)) == (b"STATUS=idle", b"STATUS=busy")


def test_abstract_sockets_work() -> None:
    """A name that begins with @ is in the abstract namespace."""
    name = f"ckptprof-test-{os.getpid()}-{time.monotonic_ns()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(b"\0" + name.encode())
        sock.settimeout(PATIENCE_SECONDS)
        assert Notifier({"NOTIFY_SOCKET": "@" + name}).ready()
        assert sock.recv(100) == b"READY=1"


@pytest.mark.parametrize(
    "address", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "relative"}, {"NOTIFY_SOCKET": "vsock:2:1"}]
)
def test_without_a_socket_nothing_happens(address: dict[str, str]) -> None:
    """In a terminal every method is a silent no-op."""
    notifier = Notifier({**address, "WATCHDOG_USEC": "1000000"})
    assert not notifier.is_active
    assert notifier.watchdog_seconds is None
    assert not any((notifier.ready("x"), notifier.status("y"), notifier.watchdog(), notifier.stopping()))


def test_a_manager_that_is_gone_is_no_error(tmp_path: Path) -> None:
    """The service outlives its manager's socket."""
    notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")})
    assert not notifier.ready()


def test_a_status_cannot_smuggle_an_assignment(manager: socket.socket) -> None:
    """Newlines and control characters of a hostile name become spaces, surrogates do not break it."""
    notifier = Notifier(environ(manager))
    notifier.status("job x\nMAINPID=1\x1b[2J\udcff" + "y" * 9999)
    message = manager.recv(65536)
    assert message.startswith(b"STATUS=job x MAINPID=1 [2J")
    assert message.count(b"\n") == 0
    assert len(message) < 600


def test_the_watchdog_beats_three_times_per_limit(manager: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Called on every turn of the loop it sends only when a third of the limit has passed."""
    notifier = Notifier(environ(manager, WATCHDOG_USEC="750000", WATCHDOG_PID=str(os.getpid())))
    assert notifier.watchdog_seconds == pytest.approx(0.75)
    sent = []
    for turn in range(9):
        monkeypatch.setattr(systemd, "time", SimpleNamespace(monotonic=lambda turn=turn: 100 + turn / 8))
        sent.append(notifier.watchdog())
    assert sent == [True, False, True, False, True, False, True, False, True]
    assert manager.recv(100) == b"WATCHDOG=1"


@pytest.mark.parametrize(
    "limits",
    [
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "-5"},
        {"WATCHDOG_USEC": "many"},
        {"WATCHDOG_USEC": "9" * 5000},
        {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"},
        {},
    ],
)
def test_a_watchdog_that_is_not_ours_is_left_alone(manager: socket.socket, limits: dict[str, str]) -> None:
    """No limit, a limit that is no number, or one for another process: no beats."""
    notifier = Notifier(environ(manager, **limits))
    assert notifier.watchdog_seconds is None
    assert not notifier.watchdog()
