"""Looks at single threads, held against what a child does on purpose."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.patience import LIFETIME, wait_until

from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.processes.process import Process, ProcessGone
from ckptprof_collectors.processes.syscalls import CALLS, classify
from ckptprof_collectors.processes.thread_samples import (
    ThreadGone,
    ThreadReader,
    has_delay_accounting,
    list_threads,
    read_schedstat,
)
from ckptprof_collectors.samples import ThreadSample

READ = CALLS["read"][0]
CHILD = f"""
import os, sys, threading, time
reader, writer = os.pipe()
def wait(): os.read(reader, 1)
def work():
    while True: sum(range(1000))
for task in (wait, work): threading.Thread(target=task, daemon=True).start()
print(*[task.native_id for task in threading.enumerate()], flush=True)
sys.stdin.read(1)
os.write(writer, b"x")
time.sleep({LIFETIME})
"""


@pytest.fixture
def child() -> Iterator[tuple[subprocess.Popen[bytes], list[int]]]:
    """Return a process, and its main thread, one that waits at a pipe, one that works."""
    with subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        threads = [int(tid) for tid in process.stdout.readline().split()]
        yield process, threads
        process.kill()


def readers_of(pid: int, threads: list[int]) -> list[ThreadReader]:
    """Look at these threads."""
    process = Process(KernelFs(), pid)
    return [ThreadReader(process, tid, delays=None) for tid in threads]


def word(look: ThreadSample) -> str:
    """Return what it is in."""
    return classify(look.state, look.call, look.wait)


def until(reader: ThreadReader, wanted: str, call: int | None = None) -> ThreadSample:
    """Look until it is found in that, and in this system call: a thread that begins waits for others, too."""

    def met() -> ThreadSample | None:
        look = reader.sample(1)
        return look if look is not None and word(look) == wanted and call in (None, look.call) else None

    found: ThreadSample = wait_until(met, lambda: reader.sample(1))
    return found


def test_each_thread_is_found_in_what_it_does(child: tuple[subprocess.Popen[bytes], list[int]]) -> None:
    """One reads its input, one waits at a pipe, one works."""
    process, threads = child
    main, waiting, working = readers_of(process.pid, threads)

    until(main, "lock", READ)  # of a pipe
    until(waiting, "lock", READ)
    first = until(working, "running")
    assert first.on_cpu_ns is not None
    assert first.waited_ns is not None
    enough_ns = first.on_cpu_ns + 100_000_000
    second = wait_until(lambda: look if (look := working.sample(2)) and look.on_cpu_ns >= enough_ns else None)
    assert second.waited_ns >= first.waited_ns
    assert second.user_ticks >= first.user_ticks
    assert (second.pid, second.tid, second.at_ns) == (process.pid, threads[2], 2)
    for reader in (main, waiting, working):
        reader.close()


def test_who_has_not_run_is_told_again_without_being_read_again(
    child: tuple[subprocess.Popen[bytes], list[int]],
) -> None:
    """Its counters are the same; only the time of the look differs."""
    process, threads = child
    (waiting,) = readers_of(process.pid, threads[1:2])
    until(waiting, "lock", READ)
    first = until(waiting, "lock", READ)  # it was so before its counters were read
    second = waiting.sample(77)

    assert second is not None
    assert second.at_ns == 77
    assert (second.on_cpu_ns, second.call, second.wait) == (first.on_cpu_ns, first.call, first.wait)
    waiting.close()


def test_a_thread_that_ended_is_gone_though_its_process_lives(child: tuple[subprocess.Popen[bytes], list[int]]) -> None:
    """The descriptors stay bound to it."""
    process, threads = child
    main, waiting = readers_of(process.pid, threads[:2])
    assert process.stdin is not None
    process.stdin.write(b"x")
    process.stdin.flush()
    wait_until(lambda: threads[1] not in list_threads(main.process))
    with pytest.raises(ThreadGone):
        waiting.sample(1)
    assert main.sample(1) is not None
    with pytest.raises(ThreadGone):
        ThreadReader(main.process, threads[1], delays=None)
    waiting.close()
    waiting.close()
    main.close()


def test_a_process_that_ended_is_gone(child: tuple[subprocess.Popen[bytes], list[int]]) -> None:
    """With all of its threads."""
    process, threads = child
    (main,) = readers_of(process.pid, threads[:1])
    process.kill()
    process.wait()

    with pytest.raises(ThreadGone):
        main.sample(1)
    with pytest.raises((ProcessGone, ThreadGone)):
        ThreadReader(main.process, threads[0], delays=None)
    assert list_threads(main.process) == []
    assert read_schedstat(main.process, threads[0]) is None
    main.close()


def test_the_main_thread_comes_first(child: tuple[subprocess.Popen[bytes], list[int]]) -> None:
    """All of them are listed, and their use can be told."""
    process, threads = child
    whole = Process(KernelFs(), process.pid)

    assert list_threads(whole)[0] == process.pid
    assert set(threads) <= set(list_threads(whole))
    assert read_schedstat(whole, process.pid)


def fake_thread(folder: Path, **files: str) -> ThreadReader:
    """Return a reader of a thread of a made-up /proc."""
    for place in (folder / "7", folder / "7/task/8"):
        place.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (place / name).write_bytes(data.encode("latin-1"))
    (folder / "7/io").write_text("rchar: 1\n")
    return ThreadReader(Process(KernelFs(proc=folder), 7), 8, delays=has_delay_accounting(KernelFs(proc=folder)))


STAT = "8 (a) (\x1b[31m b) D 1 7 7 0 -1 4194368 44 0 55 0 6 9 0 0 20 0 2 0 100 9 9 9" + " 0" * 16 + " 33 0 0\n"


def test_every_field_is_found_behind_a_hostile_name(tmp_path: Path) -> None:
    """Brackets, blanks and escape codes in a thread's name shift nothing."""
    reader = fake_thread(
        tmp_path, stat=STAT, schedstat="11 22 33\n", syscall="1 0x1 0x2 0x3 0 0 0 0xff 0xff\n", wchan="rq_qos_wait"
    )

    look = reader.sample(5)
    assert look == ThreadSample(
        7, 100, 8, "a) (\x1b[31m b", 11, 22, 6, 9, 55, 33, "D", 1, "rq_qos_wait", minor_faults=44, at_ns=5
    )


def test_delays_are_not_told_where_the_kernel_keeps_none(tmp_path: Path) -> None:
    """Zero would say that it never waited."""
    (tmp_path / "sys/kernel").mkdir(parents=True)
    (tmp_path / "sys/kernel/task_delayacct").write_text("0\n")
    look = fake_thread(tmp_path, stat=STAT, schedstat="", syscall="", wchan="0").sample(5)

    assert look is not None
    assert (look.block_delay_ticks, look.on_cpu_ns, look.call, look.wait) == (None, None, None, None)


@pytest.mark.parametrize("stat", ["", "8", "8 (x)", "8 (x) D 1 2", "8 (x) D " + "z " * 50])
def test_a_stat_that_makes_no_sense_is_no_look(tmp_path: Path, stat: str) -> None:
    """Cut short, or not of numbers."""
    reader = fake_thread(tmp_path, stat=STAT, schedstat="1 2 3\n")
    (tmp_path / "7/task/8/stat").write_text(stat)

    assert reader.sample(5) is None


@pytest.mark.root
def test_without_privileges_only_call_and_wait_are_missing(child: tuple[subprocess.Popen[bytes], list[int]]) -> None:
    """A process of another user: its counters are everybody's, what it waits in is not."""
    process, threads = child
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            reader = readers_of(process.pid, threads[2:])[0]
            reader.close()
            os.setuid(65534)
            # what /proc/PID/io needs was opened as root; the files of the thread are opened anew
            reader = ThreadReader(reader.process, threads[1], delays=None)
            look = reader.sample(1)
            assert look is not None
            os.write(writer, f"{look.on_cpu_ns is not None} {look.call} {look.wait}".encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        told = stream.read()
    os.waitpid(pid, 0)

    assert told == "True None None"
