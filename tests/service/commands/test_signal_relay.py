"""Signals: taken by one thread whatever others do, handed to the command once, and not after its group has got them."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
from types import SimpleNamespace

import psutil
import pytest
from livecommand import CKPTPROF, Ckptprof, sampler_of, wait_until
from tests.patience import PATIENCE_SECONDS

from ckptprof.service.recorder import signals
from ckptprof.service.recorder.signals import TWIN_SECONDS, CaughtSignal, SignalRelay

COUNT = """
import pathlib, signal, sys, time
count = {signal.SIGTERM: 0, signal.SIGUSR1: 0, signal.SIGUSR2: 0}
def note(number, frame):
    count[number] += 1
for number in count:
    signal.signal(number, note)
pathlib.Path("ready").touch()
while not count[signal.SIGUSR2]:
    time.sleep(0.02)
pathlib.Path("count").write_text(f"{count[signal.SIGTERM]} {count[signal.SIGUSR1]}")
sys.exit(9)
"""
TERM = CaughtSignal(signal.SIGTERM, from_terminal=False)


class Wires:
    """What a relay sends and hears, as lists, and its clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(signals, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.sent: list[int] = []
        self.heard = b""
        self.relay = SignalRelay(self.sent.append, self._hear)

    def _hear(self) -> bytes:
        heard, self.heard = self.heard, b""
        return heard

    def settle(self) -> list[int]:
        """Let the time for twins pass; return what was sent."""
        for _ in range(30):
            self.relay.turn()
            self.now += TWIN_SECONDS / 10
        return self.sent


def test_a_signal_for_us_alone_is_handed_on_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else in the group has got it: it was meant for the command through us."""
    wires = Wires(monkeypatch)
    wires.relay.ingest([TERM])

    assert wires.settle() == [signal.SIGTERM]


@pytest.mark.parametrize("first", ["witness", "us"])
def test_a_signal_for_the_group_is_not_handed_on(first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of the two is told first."""
    wires = Wires(monkeypatch)
    if first == "us":
        wires.relay.ingest([TERM, TERM])  # `timeout` sends one to us and one to the group
        wires.relay.turn()
    wires.heard = bytes([signal.SIGTERM])
    wires.relay.turn()
    if first == "witness":
        wires.relay.ingest([TERM])

    assert wires.settle() == []


def test_another_signal_of_the_group_holds_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window change of the group and a SIGTERM for us have nothing to do with one another."""
    wires = Wires(monkeypatch)
    wires.heard = bytes([signal.SIGWINCH])
    wires.relay.ingest(
        [TERM, CaughtSignal(signal.SIGCHLD, from_terminal=False), CaughtSignal(signal.SIGINT, from_terminal=True)]
    )

    assert wires.settle() == [signal.SIGTERM]


TRAP = """
import os, signal, sys, threading, time
from ckptprof.service.recorder import signals
from ckptprof.service.recorder.signals import SignalTrap
before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
trap = SignalTrap({signal.SIGTERM, signal.SIGUSR1})
threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
caught = []
for sent in range(1, 51):
    os.kill(os.getpid(), signal.SIGTERM)
    while len(caught) < sent:  # two at once are one to the kernel
        caught += trap.wait(5)
os.kill(os.getpid(), signal.SIGUSR1)
while not any(one.number == signal.SIGUSR1 for one in caught):
    caught += trap.wait(5)
fds = len(os.listdir("/proc/self/fd"))
trap.close()
trap.close()
after = signal.pthread_sigmask(signal.SIG_BLOCK, [])
print(sum(one.number == signal.SIGTERM for one in caught), before == after, fds - len(os.listdir("/proc/self/fd")),
      flush=True)
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(5)
"""


def test_a_trap_gets_every_signal_and_gives_them_back() -> None:
    """With another thread beside it none kills the process; after `close` SIGTERM does what it always did."""
    result = subprocess.run([sys.executable, "-c", TRAP], capture_output=True, check=False, timeout=PATIENCE_SECONDS)

    assert result.stdout.split() == [b"50", b"True", b"2"], result.stderr
    assert result.returncode == -signal.SIGTERM


def start_counting(ckptprof: Ckptprof) -> subprocess.Popen[bytes]:
    """Start the command that counts its signals, and wait until it does."""
    process = ckptprof.start("run", "-q", "--db", str(ckptprof.database), "--", sys.executable, "-c", COUNT)
    wait_until((ckptprof.work / "ready").exists)
    return process


def counted(ckptprof: Ckptprof, process: subprocess.Popen[bytes]) -> str:
    """Return how many SIGTERM and SIGUSR1 the command has got."""
    os.kill(process.pid, signal.SIGUSR2)  # the last one ends it: what is handed on comes in its order
    process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 9
    return (ckptprof.work / "count").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("to", ["us", "group", "each"])
def test_the_command_gets_each_signal_once(ckptprof: Ckptprof, to: str) -> None:
    """Sent to us, to the process group as a shell does, or to each process of the step as Slurm does."""
    process = start_counting(ckptprof)
    command = next(child for child in psutil.Process(process.pid).children() if COUNT in child.cmdline())
    everyone = [process.pid, sampler_of(process).pid, command.pid]

    for number in (signal.SIGTERM, signal.SIGUSR1):
        if to == "group":
            os.killpg(process.pid, number)
        else:
            for pid in everyone if to == "each" else [process.pid]:
                os.kill(pid, number)

    assert counted(ckptprof, process) == "1 1"


@pytest.mark.slow
def test_a_signal_before_the_command_runs_keeps_it_from_running(ckptprof: Ckptprof) -> None:
    """A job that was cancelled while we imported our libraries must not start after all."""
    process = ckptprof.start("run", "--db", str(ckptprof.database), "--", "sh", "-c", "echo ran > ran")
    sampler_of(process)

    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=PATIENCE_SECONDS)

    assert (ckptprof.work / "ran").exists() is (process.returncode == 0)
    assert process.returncode in (128 + signal.SIGTERM, 0)
    assert b"Traceback" not in err


@pytest.mark.slow
def test_the_terminal_stays_the_commands(ckptprof: Ckptprof) -> None:
    """It reads from the terminal; Ctrl-Z stops it with all of us and leaves nothing lost; Ctrl-C is its own."""
    line = f"{' '.join(CKPTPROF)} run -q --db {ckptprof.database} -- sh -c 'read x; echo got $x; sleep 30'"
    terminal, inside = pty.openpty()
    bash = ["setsid", "--ctty", "bash", "--norc", "-i"]
    prompt = {**os.environ, "PS1": r"\$ "}  # that of a virtual environment would be inherited
    shell = psutil.Popen(bash, stdin=inside, stdout=inside, stderr=inside, cwd=ckptprof.work, env=prompt)
    os.close(inside)

    def screen(until: bytes) -> None:
        seen = b""
        while until not in seen:
            assert select.select([terminal], [], [], PATIENCE_SECONDS)[0], f"{until!r} does not come after {seen!r}"
            seen += os.read(terminal, 4096)

    def states() -> set[str]:
        return {child.status() for child in shell.children(recursive=True)}

    try:
        os.write(terminal, f"{line}\nit\n".encode())
        screen(b"got it")
        wait_until(lambda: any(child.name() == "sleep" for child in shell.children(recursive=True)))
        os.write(terminal, b"\x1a")
        wait_until(lambda: states() == {"stopped"})
        os.write(terminal, b"fg\n")
        wait_until(lambda: "stopped" not in states())
        os.write(terminal, b"\x03")
        screen(b"$ " if os.geteuid() else b"# ")
        os.write(terminal, b"echo code=$((1000+$?))\n")
        screen(b"code=1130")
    finally:
        for process in (*shell.children(recursive=True), shell):
            process.kill()
        shell.wait()
        os.close(terminal)
    assert ckptprof.call("report", "--db", str(ckptprof.database)).returncode == 3
