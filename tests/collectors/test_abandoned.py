"""Children and threads that do not end are left behind: no wait is without a bound, and they are few."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.patience import LIFETIME, PATIENCE_SECONDS, wait_until

from ckptprof_collectors import abandoned
from ckptprof_collectors.abandoned import (
    MAX_PER_KIND,
    AbandonedWork,
    call_with_timeout,
    reap,
    run_program,
    uninterruptible_sleep,
    wait_child,
)

# The parent of a vfork(2) sleeps in state D until its child executes, which it does not before the FIFO is opened
ASLEEP = """import os, sys
os.posix_spawn('/bin/true', ['true'], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, sys.argv[1], 0, 0)])"""


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> AbandonedWork:
    """Return a list of its own for this test."""
    own = AbandonedWork()
    monkeypatch.setattr(abandoned, "ABANDONED", own)
    return own


@pytest.fixture
def sleeper() -> Iterator[int]:
    """Return a child that ends when it is killed."""
    pid = os.posix_spawn("/bin/sleep", ["sleep", LIFETIME], {})
    yield pid
    if not reap(pid):
        os.kill(pid, signal.SIGKILL)
        wait_child(pid, PATIENCE_SECONDS)


def test_a_child_is_waited_for_as_long_as_is_said(sleeper: int) -> None:
    """None for one that runs; afterwards its status, once."""
    assert wait_child(sleeper, 0.0) is None
    assert not reap(sleeper)
    os.kill(sleeper, signal.SIGKILL)
    ended = wait_child(sleeper, PATIENCE_SECONDS)

    assert ended is not None
    assert (os.WTERMSIG(ended[0]), ended[1].ru_maxrss > 0) == (signal.SIGKILL, True)
    assert reap(sleeper)  # whoever reaped it


def test_what_is_left_is_counted_until_it_ends() -> None:
    """By kind and by user; a kind of which too many are left is full, and the others are not."""
    gates = [threading.Event() for _ in range(MAX_PER_KIND)]
    own = AbandonedWork()
    for number, gate in enumerate(gates):
        assert not own.is_full("stacks")
        own.add("stacks", gate.is_set, user=number % 2)
    own.remove_ended()

    assert (own.count(), own.count("stacks", user=1), own.count("gpus")) == (MAX_PER_KIND, MAX_PER_KIND // 2, 0)
    assert (own.is_full("stacks"), own.is_full("gpus")) == (True, False)
    gates[1].set()
    own.remove_ended()
    assert (own.count("stacks"), own.count("stacks", user=1), own.is_full("stacks")) == (3, 1, False)


class Unkillable:
    """A child that ignores SIGKILL."""

    ends = False
    returncode = None

    def __init__(self, *_: object, **__: object) -> None:
        """Take what Popen does."""
        self.stdout, self.stderr = (os.fdopen(os.open(os.devnull, os.O_RDONLY)) for _ in range(2))
        self.killed = 0

    def communicate(self, timeout: float) -> None:
        """Never come to an end."""
        raise subprocess.TimeoutExpired("program", timeout)

    wait = communicate

    def kill(self) -> None:
        """Count it, which is all that comes of it."""
        self.killed += 1

    def poll(self) -> int | None:
        """Return the code once it is let go."""
        return 0 if Unkillable.ends else None


def test_a_program_that_ignores_its_end_is_left(left: AbandonedWork, monkeypatch: pytest.MonkeyPatch) -> None:
    """And reaped when it ends; `subprocess.run` would wait."""
    monkeypatch.setattr(Unkillable, "ends", False)
    monkeypatch.setattr(abandoned.subprocess, "Popen", Unkillable)
    with pytest.raises(subprocess.TimeoutExpired):
        run_program(["program"], timeout_seconds=1.0)

    left.remove_ended()
    assert left.count("program") == 1
    monkeypatch.setattr(Unkillable, "ends", True)
    left.remove_ended()
    assert left.count() == 0


def test_a_program_is_run(left: AbandonedWork) -> None:
    """What it prints and how it ends are returned; after its time it is ended, and none is left."""
    done = run_program(
        [sys.executable, "-c", "import sys; print('out'); sys.exit('error')"], timeout_seconds=PATIENCE_SECONDS
    )

    assert (done.returncode, done.stdout, done.stderr) == (1, "out\n", "error\n")
    with pytest.raises(subprocess.TimeoutExpired):
        run_program(["/bin/sleep", LIFETIME], timeout_seconds=0.1)
    wait_until(lambda: left.remove_ended() or left.count() == 0)


def test_work_in_a_thread_is_left_and_bounded(left: AbandonedWork) -> None:
    """What it returns and raises is its caller's; where too many hang no other begins."""
    gate, began = threading.Event(), list[int]()

    def hang() -> None:
        began.append(1)
        gate.wait(PATIENCE_SECONDS)

    assert call_with_timeout("work", lambda: 7, PATIENCE_SECONDS) == 7
    with pytest.raises(ZeroDivisionError):
        call_with_timeout("work", lambda: 1 // 0, PATIENCE_SECONDS)
    for _ in range(MAX_PER_KIND + 2):
        with pytest.raises(TimeoutError):
            call_with_timeout("work", hang, 0.0)
    assert left.count("work") == MAX_PER_KIND
    gate.set()
    wait_until(lambda: left.remove_ended() or left.count() == 0)
    assert len(began) == MAX_PER_KIND
    assert call_with_timeout("work", lambda: 8, PATIENCE_SECONDS) == 8


def test_a_sleep_that_no_signal_interrupts_is_seen(tmp_path: Path, sleeper: int) -> None:
    """The same one twice; none of a process that sleeps as most do, or is gone."""
    os.mkfifo(tmp_path / "gate")
    asleep = os.posix_spawn(sys.executable, [sys.executable, "-c", ASLEEP, str(tmp_path / "gate")], {})
    wait_until(lambda: uninterruptible_sleep(asleep) is not None)

    assert uninterruptible_sleep(asleep) == uninterruptible_sleep(asleep)
    assert uninterruptible_sleep(sleeper) is None
    (tmp_path / "gate").write_text("")
    assert wait_child(asleep, PATIENCE_SECONDS) is not None
    assert uninterruptible_sleep(asleep) is None
