"""The main thread's time on CPU and its own bytes, held against what this very process does."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from pathlib import Path

import pytest
from tests.patience import LIFETIME, wait_until

from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.processes.process import Process, ProcessGone
from ckptprof_collectors.processes.thread_clock import ThreadClock, parse


@pytest.fixture
def clock() -> ThreadClock:
    """Return the clock of this process's main thread."""
    return ThreadClock(Process(KernelFs(), os.getpid()))


def test_time_on_cpu_grows_with_work(clock: ThreadClock) -> None:
    """A tenth of a second of work is seen, but for what the kernel has not counted yet: it does at each tick."""
    if threading.get_native_id() != os.getpid():
        pytest.skip("the test does not run in the main thread")
    first = clock.read()
    until = time.thread_time() + 0.1
    while time.thread_time() < until:
        pass
    second = clock.read()

    assert first is not None
    assert second is not None
    assert second.on_cpu_ns - first.on_cpu_ns > 0.05e9
    assert (second.pid, second.tid) == (os.getpid(), os.getpid())
    clock.close()


def test_only_the_bytes_of_the_main_thread_count(clock: ThreadClock, tmp_path: Path) -> None:
    """What another thread writes is not in /proc/PID/task/PID/io."""

    def write(size: int) -> None:
        (tmp_path / "file").write_bytes(bytes(size))

    before = clock.read()
    other = threading.Thread(target=write, args=(5 << 20,))
    other.start()
    other.join()
    between = clock.read()
    write(3 << 20)
    after = clock.read()

    written = [one.written_chars or 0 for one in (before, between, after) if one is not None]
    if threading.get_native_id() == os.getpid():
        assert written[1] - written[0] < 1 << 20
        assert written[2] - written[1] >= 3 << 20
    clock.close()


def test_a_thread_that_sleeps_yields_nothing_new() -> None:
    """Counters that did not change are no sample."""
    with subprocess.Popen(["/usr/bin/sleep", LIFETIME]) as child:
        clock = ThreadClock(Process(KernelFs(), child.pid))
        assert clock.read() is not None
        wait_until(lambda: clock.read() is None)
        child.kill()

    with pytest.raises(ProcessGone):
        clock.read()
    clock.close()


@pytest.mark.parametrize(
    ("schedstat", "io", "expected"),
    [
        (b"10 20 3\n", b"", (10, 20, 3, None, None)),
        (b"10 20 3\n", b"rchar: 7\nwchar: 8\nsyscr: 1\n", (10, 20, 3, 8, 7)),
        (b"10 20 3\n", b"rchar: x\nwchar: 8\n", (10, 20, 3, None, None)),
        (b"10 20", b"", None),
        (b"", b"", None),
        (b"a b c", b"", None),
    ],
)
def test_what_is_not_complete_is_not_taken(
    schedstat: bytes, io: bytes, expected: tuple[int | None, ...] | None
) -> None:
    """A kernel that says less, or something else, yields less or nothing."""
    time_ = parse(1, 2, 1, schedstat, io)

    found = None
    if time_ is not None:
        found = (time_.on_cpu_ns, time_.waited_ns, time_.slices, time_.written_chars, time_.read_chars)
    assert found == expected
