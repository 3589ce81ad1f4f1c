"""The sampler's loop is taken over where a process holds the thread that reads of it."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from standintrace import Desk
from tests.patience import wait_until

from ckptprof.service.sampler import entry_point
from ckptprof.service.sampler.entry_point import (
    MAX_BLOCKED_LOOPS,
    MAX_SLOW_CHECKS,
    REFUSED_SECONDS,
    LoopRelay,
    LoopReplacedError,
)
from ckptprof_collectors import blocking_processes
from ckptprof_collectors.blocking_processes import MAX_PER_USER, BlockingProcesses


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> BlockingProcesses:
    """Return holders of a /proc with a few processes of this user, in the place of the real ones."""
    for pid in range(1, 100):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "uid_map").write_text("0 0 4294967295\n")
    made = BlockingProcesses(tmp_path)
    monkeypatch.setattr(made, "user_of", lambda pid: pid // 10)
    monkeypatch.setattr(entry_point, "BLOCKING_PROCESSES", made)
    monkeypatch.setattr(entry_point, "CHECK_SECONDS", 0.02)
    monkeypatch.setattr(entry_point, "CALM_CHECK_SECONDS", 0.02)
    return made


class Loop:
    """Reads processes of which some do not answer: each holds its reader in the read of a pipe."""

    is_calm = True

    def __init__(self, held: BlockingProcesses, pids: range) -> None:
        """Make a pipe for each, which nobody writes to."""
        self.held = held
        self.pids = pids
        self.pipes = {pid: os.pipe() for pid in pids}
        self.after: list[int] = []  # what a thread did that had been held
        self.reliefs = 0

    def run(self) -> None:
        """Begin."""
        self.resume()

    def resume(self) -> None:
        """Read one after the other."""
        for pid in self.pids:
            if pid in self.held:
                continue
            self.held.reading = pid
            os.read(self.pipes[pid][0], 1)
            self.after.append(pid)
        self.held.reading = 0

    def release_loop(self) -> None:
        """Take note of it."""
        self.reliefs += 1


class Asleep(LoopRelay):
    """Takes any thread that reads for one that sleeps in the kernel."""

    def _sleep(self) -> bytes | None:
        return b"asleep"


@pytest.fixture
def ended() -> list[int]:
    """Return the codes with which a process would have ended."""
    return []


def started(loop: Loop, codes: list[int]) -> None:
    """Run it in a thread that stands for the main one, until it ends or holds."""
    threading.Thread(target=Asleep(loop, codes.append).run, daemon=True).start()
    wait_until(lambda: codes or (len(loop.held) >= MAX_BLOCKED_LOOPS and loop.reliefs >= MAX_BLOCKED_LOOPS))


def test_another_thread_goes_on_without_those_who_hold_one(held: BlockingProcesses, ended: list[int]) -> None:
    """Two of a user hold a thread each, then none of his is read; the threads end as soon as they are let go."""
    loop = Loop(held, range(10, 20))
    started(loop, ended)

    assert (ended, loop.reliefs, held.refused_users(), held.affected_users()) == ([0], MAX_PER_USER, {1}, [1])
    assert 15 in held
    assert 25 not in held
    for _, end in loop.pipes.values():
        os.close(end)
    wait_until(lambda: held.remove_ended() or not len(held))
    assert (loop.after, held.refused_users()) == ([], set())


def test_no_more_threads_are_left_than_may_be(held: BlockingProcesses, ended: list[int]) -> None:
    """Many users can hold as many as that; the recorder then replaces the sampler."""
    loop = Loop(held, range(10, 100, 10))
    started(loop, ended)
    time.sleep(0.2)  # in which there would be one more

    assert (ended, loop.reliefs) == ([], MAX_BLOCKED_LOOPS)
    for _, end in loop.pipes.values():
        os.close(end)


def test_who_is_slow_again_and_again_is_left_for_a_while(held: BlockingProcesses) -> None:
    """Each read comes back, but between two looks there was another: the user's processes are not read for a while."""
    one = Asleep(Loop(held, range(0)), lambda _: None)
    last = None
    for look in range(MAX_SLOW_CHECKS + 1):
        held.reading = 10 + look % 2
        last = one._check(last)

    assert held.refused_users() == {1}
    assert 19 in held
    held._refused[1] = 0
    held.remove_ended()
    assert 19 not in held


def test_who_is_slow_soon_again_is_left_for_longer(held: BlockingProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    """He cannot make the others wait every half minute; but he is looked at again, and soon if it was long ago."""
    now = [1_000.0]
    monkeypatch.setattr(blocking_processes.time, "monotonic_ns", lambda: int(now[0] * 1e9))
    left = []
    for pause in (0.0, 29.0, 59.0, *[1.0] * 8, 3601.0):
        now[0] += pause
        held.refuse(1, REFUSED_SECONDS)
        began = now[0]
        while held.refused_users():
            now[0] += 0.5
            held.remove_ended()
        left.append(now[0] - began)

    assert left == pytest.approx([30, 60, 120, 240, 480, 960, 1920, *[3600] * 4, 30], abs=1)


def test_a_tick_that_was_held_is_told_as_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """What went on while a process held the loop may have been missed: it is not as if nothing had been due."""
    desk = Desk(Mock(), level="poll")
    finds = iter([True, False])

    def find(*_: Any, **__: Any) -> list[Any]:
        if next(finds):
            time.sleep(0.4)
            raise LoopReplacedError
        desk.sampler.stopping = True
        return []

    with monkeypatch.context() as patch:
        patch.setattr(desk.sampler._population, "find", find)
        patch.setattr(desk.sampler, "_finish", lambda: None)
        with pytest.raises(LoopReplacedError):
            desk.sampler.run()
        desk.sampler.release_loop()
        desk.sampler.resume()
    starved_ns = desk.sampler.health().starved_ns
    desk.close()

    assert starved_ns is not None
    assert starved_ns >= 400_000_000


def test_root_is_never_refused(held: BlockingProcesses) -> None:
    """Its processes are not the attacker's to hold, and are read but for the very one that holds."""
    held.refuse(0, 60)
    for pid in (1, 2, 3):
        held.add(pid, lambda: False)

    assert held.refused_users() == set()
    assert (3 in held, 4 in held) == (True, False)


def test_ids_of_a_user_namespace_are_one_user(tmp_path: Path) -> None:
    """Who was given a range of ids cannot count as so many users; ids of the host as large as that can."""
    for pid, ids in ((1, "0 100000 65536"), (2, "0 0 4294967295")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "uid_map").write_text(ids)
    made = BlockingProcesses(tmp_path)
    mine = os.getuid()

    assert [made.user_of(pid) for pid in (1, 2, 3)] == [mine, mine, 0]
    for pid, user in ((1, 200_005), (2, 200_005)):
        with pytest.MonkeyPatch.context() as patch:
            state = os.stat_result((0, 0, 0, 0, user, 0, 0, 0, 0, 0))
            patch.setattr(blocking_processes.os, "stat", lambda _, state=state: state)
            assert made.user_of(pid) == (-(200_005 >> 16) if pid == 1 else 200_005)
