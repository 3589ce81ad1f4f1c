"""Whose Python stacks are looked at, and when: bounded in number, the trainer before its helpers, and once in peace."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ckptprof.service.sampler.stacklooks import CALM_NS, LOOKS_NS, MAX_PER_MINUTE, PAUSE_NS, StackLooks

SECOND_NS = 1_000_000_000


def process(pid: int, parent: int = 1, *, rank: int | None = None, trains: bool = True) -> Any:
    """Return what the sampler keeps about a process."""
    environment = {} if rank is None else {"RANK": str(rank)}
    return SimpleNamespace(
        process=SimpleNamespace(pid=pid, parent_pid=parent, start_ticks=pid),
        info=SimpleNamespace(environment=environment),
        trains=trains,
        interpreter=trains,
        wrote_ns=-SECOND_NS,
    )


def watch(watched: dict[int, Any], writer: int, until_s: float, of_s: float) -> list[tuple[float, int]]:
    """Let one write from second 1 until another; return (second, pid) of all looks of so many seconds."""
    looks, found = StackLooks(), []
    for tick in range(int(of_s * 25)):
        now_ns = tick * SECOND_NS // 25
        if 1 <= now_ns / SECOND_NS < until_s:
            watched[writer].wrote_ns = now_ns
        for target in looks.due(now_ns, list(watched.values()), watched)[:1]:
            looks.looked(now_ns, target.process.pid)
            found.append((now_ns / SECOND_NS, target.process.pid))
    return found


def test_looks_grow_rare_while_a_save_lasts_and_one_comes_after() -> None:
    """At once, eight times in half a minute, and when all is over."""
    found = watch({100: process(100)}, 100, 40.0, 50.0)

    assert [round(at_s - 1.0, 1) for at_s, _ in found[:4]] == [round(ns / 1e9, 1) for ns in (0, 160e6, 400e6, 920e6)]
    assert len(found) == len(LOOKS_NS) + 1
    assert 0 <= found[-1][0] - 40.0 - CALM_NS / 1e9 < 0.3 + PAUSE_NS / 1e9


def test_nobody_is_looked_at_who_writes_nothing() -> None:
    """Two trainers, and one of them saves."""
    found = watch({100: process(100), 200: process(200)}, 100, 4.0, 8.0)

    assert {pid for _, pid in found} == {100}


def test_the_parent_comes_before_the_child_that_writes_for_it() -> None:
    """It may be the one that trains."""
    found = watch({100: process(100), 200: process(200, 100)}, 200, 1.1, 1.4)

    assert [pid for _, pid in found][:2] == [100, 200]


def test_a_launcher_without_a_rank_is_left_out() -> None:
    """Its workers have ranks: the lowest goes first."""
    watched = {100: process(100), 200: process(200, 100, rank=1), 300: process(300, 100, rank=0)}
    looks, found = StackLooks(), []
    for tick in range(10):
        watched[200].wrote_ns = watched[300].wrote_ns = tick
        target = looks.due(tick, list(watched.values()), watched)[:1]
        found += [watching.process.pid for watching in target]
        for watching in target:
            looks.looked(tick, watching.process.pid)

    assert found == [300, 200]


def test_a_tool_that_writes_calls_for_no_look() -> None:
    """A log that is rotated beside the training."""
    assert watch({100: process(100), 200: process(200, trains=False)}, 200, 5.0, 8.0) == []


def test_a_host_that_saves_without_end_is_looked_at_forty_times_a_minute() -> None:
    """Whatever else happens."""
    watched = {pid: process(pid) for pid in range(100, 112)}
    looks, count = StackLooks(), 0
    for tick in range(25 * 55):
        now_ns = tick * SECOND_NS // 25
        for watching in watched.values():
            if tick % 75 < 25:
                watching.wrote_ns = now_ns
        for target in looks.due(now_ns, list(watched.values()), watched)[:1]:
            looks.looked(now_ns, target.process.pid)
            count += 1

    assert count == MAX_PER_MINUTE
