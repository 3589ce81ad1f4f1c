"""Whose Python stacks are looked at, and when: bounded in number, the trainer before its helpers, and once in peace."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from ckptprof.service.sampler.governor import Governor
from ckptprof.service.sampler.stack_sampling import (
    CALM_INTERVAL_NS,
    CALM_SAMPLE_NS,
    PAUSE_NS,
    PROFILE_SAVED_NS,
    PROFILE_SHARE,
    SAMPLE_OFFSETS_NS,
    SAVED_NS,
    SHARE,
    StackSampling,
    StackSchedule,
    training_threads,
)

SECOND_NS = 1_000_000_000
COST_NS = 12_000_000  # of a look
PROFILE_COST_NS = 200_000_000


def process(pid: int, parent: int = 1, *, rank: int | None = None, trains: bool = True) -> Any:
    """Return what the sampler keeps about a process."""
    return SimpleNamespace(
        process=SimpleNamespace(pid=pid, parent_pid=parent, start_ticks=pid),
        rank=rank,
        is_training=trains,
        is_interpreter=trains,
        changed_ns=10_000 * SECOND_NS if trains else 0,
        last_write_ns=-SECOND_NS,
        last_wrote_ns=0,
    )


def watch(watched: dict[int, Any], writer: int, until_s: float, of_s: float) -> list[tuple[float, int]]:
    """Let one write from second 1 until another; return (second, pid) of all looks of so many seconds."""
    looks, found = StackSchedule(), []
    for tick in range(int(of_s * 25)):
        now_ns = tick * SECOND_NS // 25
        if 1 <= now_ns / SECOND_NS < until_s:
            watched[writer].last_write_ns = now_ns
        for target in looks.due(now_ns, list(watched.values()), watched)[:1]:
            looks.record_sample(now_ns, target.process.pid)
            found.append((now_ns / SECOND_NS, target.process.pid))
    return found


def test_looks_grow_rare_while_a_save_lasts_and_one_comes_after() -> None:
    """At once, six times in half a minute, and when all is over."""
    found = watch({100: process(100)}, 100, 40.0, 50.0)

    assert [round(at_s - 1.0, 1) for at_s, _ in found[:3]] == [0.0, 0.9, 2.0]
    assert len(found) == len(SAMPLE_OFFSETS_NS) + 1
    assert 0 <= found[-1][0] - 40.0 - CALM_SAMPLE_NS / 1e9 < 0.3 + PAUSE_NS / 1e9


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
    looks, found = StackSchedule(), []
    for tick in range(10):
        watched[200].last_write_ns = watched[300].last_write_ns = tick
        target = looks.due(tick, list(watched.values()), watched)[:1]
        found += [watching.process.pid for watching in target]
        for watching in target:
            looks.record_sample(tick, watching.process.pid)

    assert found == [300, 200]


def test_a_tool_that_writes_calls_for_no_look() -> None:
    """A log that is rotated beside the training."""
    assert watch({100: process(100), 200: process(200, trains=False)}, 200, 5.0, 8.0) == []


def saves(
    looks: StackSchedule, watched: dict[int, Any], every_s: int, of_s: int, since_s: int = 0
) -> list[tuple[float, int]]:
    """Let all save for a second each so many seconds; return (second, pid) of all looks."""
    found = []
    for tick in range(since_s * 25, (since_s + of_s) * 25):
        now_ns = tick * SECOND_NS // 25
        for watching in watched.values():
            if tick % (every_s * 25) < 25:
                watching.last_write_ns = now_ns
        for target in looks.due(now_ns, list(watched.values()), watched)[:1]:
            pid = target.process.pid
            looks.record_sample(now_ns, pid)
            looks.spend(pid, COST_NS)
            found.append((now_ns / SECOND_NS, pid))
    return found


def test_the_first_saves_of_a_process_are_looked_at_in_full_and_later_ones_as_its_allowance_lasts() -> None:
    """One that saves every five seconds; the looks that were due and not taken are counted."""
    looks = StackSchedule()
    found = saves(looks, {100: process(100)}, 5, 1200)

    first = [at_s for at_s, _ in found if at_s < 5 * 8]
    assert [sum(5 * save <= at_s < 5 * save + 2 for at_s in first) for save in range(8)] == [2] * 8
    assert len(found) * COST_NS <= SAVED_NS + SHARE * 1200e9 + COST_NS
    assert len(found) + looks.missed >= 2 * 1200 // 5


def test_in_peace_a_process_that_saves_again_and_again_is_looked_at_now_and_then() -> None:
    """It does the same as after the save before; after its first saves it is looked at each time."""
    found = saves(StackSchedule(), {100: process(100)}, 5, 150)

    calm = [at_s for at_s, _ in found if at_s % 5 >= 1 + PAUSE_NS / 1e9]
    apart_s = [round(after - before) for before, after in pairwise(calm)]
    first = apart_s.index(next(gap for gap in apart_s if gap > 5))
    assert first >= 2
    assert min(apart_s[first:]) >= CALM_INTERVAL_NS // SECOND_NS


def test_a_process_with_the_number_of_one_that_ended_has_an_allowance_of_its_own() -> None:
    """Numbers come again."""
    looks = StackSchedule()
    watched = {100: process(100)}
    saves(looks, watched, 5, 400)
    spared = saves(looks, watched, 5, 20, 400)
    watched[100] = process(100)

    assert len(spared) < 20 // 5 * 2 <= len(saves(looks, watched, 5, 20, 420))


def test_one_training_thread_of_each_job_is_profiled() -> None:
    """That of its lowest rank, or of its oldest process; none of what waits, or does not train."""
    launcher, ranks = process(100), [process(200, 100, rank=1), process(300, 100, rank=0), process(310, 300, rank=0)]
    alone, waits, tool = process(400), process(500), process(600, trains=False)
    waits.changed_ns = -10 * SECOND_NS
    worker = process(510, 500)
    watched = {one.process.pid: one for one in (launcher, *ranks, alone, waits, worker, tool)}

    assert training_threads(0, watched) == [300, 400, 510]


class Profiler:
    """Stands in for py-spy: it samples until it is stopped."""

    def __init__(self) -> None:
        self.busy, self.cost_ns, self.is_available = False, 0, True
        self.requested: list[int] = []
        self.stops = 0

    def request(self, target: Any) -> bool:
        """Start to sample."""
        self.requested.append(target.pid)
        self.busy = True
        return True

    def stop(self) -> None:
        """End at once, at a cost."""
        self.busy, self.stops, self.cost_ns = False, self.stops + 1, self.cost_ns + PROFILE_COST_NS

    def consume(self) -> list[Any]:
        """Show nothing."""
        return []

    def consume_reason(self) -> None:
        """Nothing fails."""


def profiled(watched: dict[int, Any], of_s: int, save_s: float, counter: str = "last_write_ns") -> Profiler:
    """Sample for so many seconds with a save of half a second at one, which one counter shows."""
    sampling, profiler = StackSampling(Governor(None, lambda: 0)), Profiler()
    sampling._profiler, sampling._reader = profiler, Profiler()  # type: ignore[assignment]
    for tick in range(of_s * 25):
        if save_s <= tick / 25 < save_s + 0.5:
            setattr(watched[min(watched)], counter, tick * SECOND_NS // 25)
        sampling.sample(tick * SECOND_NS // 25, list(watched.values()), watched)
        if tick % 500 == 499 and profiler.busy:
            profiler.stop()
    return profiler


@pytest.mark.parametrize("counter", ["last_write_ns", "last_wrote_ns"])
def test_a_profile_ends_with_a_save_and_the_next_one_starts(counter: str) -> None:
    """It shows what came before the save; of one write of a whole file polling sees only its counter."""
    profiler = profiled({100: process(100)}, 10, 5.0, counter)

    assert (profiler.requested, profiler.stops) == ([100, 100], 1)


def test_profiles_take_turns_within_their_share() -> None:
    """Two jobs, for an hour: at first without a pause."""
    profiler = profiled({100: process(100), 200: process(200)}, 3600, 5000.0)

    assert profiler.requested[:4] == [100, 200, 100, 200]
    assert profiler.cost_ns <= PROFILE_SAVED_NS + PROFILE_SHARE * 3600e9 + PROFILE_COST_NS


@pytest.mark.parametrize(("every_s", "least", "most"), [(20, 0.9, 1.0), (80, 0.3, 0.35)])
def test_of_rare_saves_only_the_time_in_which_one_is_due_is_profiled(every_s: int, least: float, most: float) -> None:
    """From 0.7 of the shorter of the last two times between them; of frequent saves, and of the first three, always."""
    sampling, profiler = StackSampling(Governor(None, lambda: 0)), Profiler()
    sampling._profiler, sampling._reader = profiler, Profiler()  # type: ignore[assignment]
    watched, busy, ticks = {100: process(100)}, [], every_s * 25
    for tick in range(8 * ticks):
        if tick % ticks < 25 <= tick:
            watched[100].last_wrote_ns = tick * SECOND_NS // 25
        sampling.sample(tick * SECOND_NS // 25, list(watched.values()), watched)
        busy.append(profiler.busy)

    shares = [sum(busy[at : at + ticks]) / ticks for at in range(0, 8 * ticks, ticks)]
    assert min(shares[:3]) > 0.9
    assert all(least < share < most for share in shares[4:])
    assert all(busy[at - 100] and busy[at + 20] for at in range(ticks, 8 * ticks, ticks))
