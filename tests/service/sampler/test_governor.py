"""The CPU budget: what it counts, what is left out above it, in which order, and when that is done again."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from standintrace import Desk, StandIn

from ckptprof.service.sampler.activity import ProcessActivity
from ckptprof.service.sampler.burst_sampling import BurstSampling
from ckptprof.service.sampler.governor import LIMITS, MINUTE_NS, PERIOD_NS, WINDOW_NS, Governor, used_by
from ckptprof_collectors.files.file_facts import FactQuery
from ckptprof_collectors.files.process_roots import OWN_PROCESS
from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.samples import SamplerHealth

SECOND_NS = 1_000_000_000


class Budgeted:
    """A governor with a clock and an account of its own."""

    def __init__(self, budget: float | None = 0.05, *, started_ns: int = 0) -> None:
        self.used_ns = started_ns
        self.now_ns = 7 * SECOND_NS
        self.governor = Governor(budget, lambda: self.used_ns)
        self.governor.update(self.now_ns, saves=False)

    def use(self, share: float, seconds: float, *, saves: bool = False) -> None:
        """Use so much of a core for a while."""
        until_ns = self.now_ns + int(seconds * SECOND_NS)
        while self.now_ns < until_ns:
            self.now_ns += PERIOD_NS
            self.used_ns += int(share * PERIOD_NS)
            self.governor.update(self.now_ns, saves=saves)

    def left_out(self) -> list[str]:
        """Return what is left out now."""
        return [work for work in LIMITS if not self.governor.allows(work)]


@pytest.mark.parametrize(
    ("share", "left_out"),
    [
        (0.02, []),
        (0.035, ["files"]),
        (0.0412, ["files", "stacks"]),
        (0.0414, ["files", "stacks", "timelines"]),
        (0.0417, ["files", "stacks", "timelines", "fast sampling"]),
        (0.042, ["files", "stacks", "timelines", "fast sampling", "folders"]),
    ],
)
def test_work_is_left_out_in_the_order_of_its_worth(share: float, left_out: list[str]) -> None:
    """The more of the budget is used, the more; real time ends with the first."""
    one = Budgeted()
    one.use(share, 700)

    assert one.left_out() == left_out
    assert one.governor.is_within is (not left_out)
    assert one.governor.left_out == dict.fromkeys(left_out, 1)


def test_a_minute_has_more_while_a_checkpoint_is_under_way() -> None:
    """But no more than its ten minutes have left: a save that lasts spends those, for the minutes after, too."""
    one = Budgeted()
    one.use(0.15, 60, saves=True)
    during = one.left_out()
    one.use(0.15, PERIOD_NS / SECOND_NS)
    after = one.left_out()
    one.use(0.15, 90, saves=True)
    lasting = one.left_out()
    one.use(0.0, MINUTE_NS / SECOND_NS)
    resting = one.left_out()
    one.use(0.08, MINUTE_NS / SECOND_NS, saves=True)
    again = one.left_out()
    one.use(0.0, WINDOW_NS / SECOND_NS)
    one.use(0.08, MINUTE_NS / SECOND_NS, saves=True)

    assert (during, resting, one.left_out()) == (["files"], [], [])
    assert after == lasting == again == list(LIMITS)


def test_the_start_counts_in_the_ten_minutes_only() -> None:
    """It takes as much as a minute may."""
    one = Budgeted(started_ns=26 * SECOND_NS)
    one.use(0.02, 100)
    early = one.left_out()
    one.now_ns += WINDOW_NS  # suspended
    one.use(0.02, PERIOD_NS / SECOND_NS)

    assert (early, one.left_out()) == (list(LIMITS), [])


@pytest.mark.parametrize("saves", [False, True])
@pytest.mark.parametrize("cost", [0.05, 0.08, 0.15])
def test_ten_minutes_hold_the_budget_beside_a_crowd(cost: float, *, saves: bool) -> None:
    """Which would cost so much of a core if all were sampled as fast as usual, and 0.3 % in any case."""
    one, used_ns = Budgeted(), list[int]()
    for _ in range(1800):
        one.use(0.003 + cost / one.governor.slowdown, PERIOD_NS / SECOND_NS, saves=saves)
        used_ns.append(one.used_ns)
    steps = WINDOW_NS // PERIOD_NS

    assert max(map(int.__sub__, used_ns[steps:], used_ns)) <= 1.1 * 0.05 * WINDOW_NS
    assert used_ns[-1] - used_ns[-steps] > 0.8 * 0.05 * WINDOW_NS


def test_without_a_budget_nothing_is_left_out() -> None:
    """As below `ckptprof run`."""
    one = Budgeted(None)
    one.use(1.0, 700)

    assert one.left_out() == []
    assert one.governor.left_out == {}


def test_the_recorder_counts_from_the_start_of_its_sampler() -> None:
    """One that has run for days may start another sampler; children that have ended count, as py-spy does."""
    code = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True); input()"
    before_ns = used_by([])
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        desk = Desk(StandIn(), level="poll", monitor_pids=(process.pid,))
        governor: Any = desk.sampler.governor
        apart_ns, counted_ns = used_by([process.pid]) - used_by([]), governor._used_ns() - used_by([])
        desk.close()
        process.communicate(b"\n")

    assert apart_ns >= 0.3 * SECOND_NS
    assert counted_ns < 0.1 * SECOND_NS
    assert used_by([process.pid]) - before_ns >= 0.3 * SECOND_NS


@pytest.mark.parametrize(
    ("used_share", "hz", "host_hz"),
    [(0.0, 25, 5), (0.85, 25, 5), (0.9, 25, 1), (0.95, 10, 1), (1.0, 10, 1), (1.5, 10 / 5.5, 1), (3.0, 1, 1)],
)
def test_the_sampler_keeps_to_its_budget(used_share: float, hz: float, host_hz: int) -> None:
    """Devices are read as between bursts, then processes; above it all counters are read, but more rarely."""
    desk = Desk(StandIn(), level="poll")
    sampler: Any = desk.sampler
    sampler.governor.used_share = used_share
    now_ns = 100 * SECOND_NS
    sampler._last_burst_ns = now_ns
    sampler._population.watched[1] = SimpleNamespace()
    period_ns = sampler._period_ns(now_ns, [ProcessActivity()])
    sampler._population.watched.clear()
    sampler.tick(now_ns)
    host_ns = sampler._next_host_ns - now_ns
    desk.close()

    assert period_ns == pytest.approx(SECOND_NS / hz)
    assert host_ns == pytest.approx(SECOND_NS / host_hz, rel=0.05)


def test_above_its_budget_others_are_not_followed_and_real_time_ends() -> None:
    """And health says at once how much was left out; all of it comes back."""
    desk = Desk(StandIn(), level="poll", cpu_budget=0.05, only_descendants=True)  # of nobody who saves
    sampler: Any = desk.sampler
    used, told = [0], []
    sampler.governor._used_ns = lambda: used[0]
    sampler.on_budget = told.append
    left, healths, allowance = [], [], sampler._population.others_of(0)
    for second, used_seconds in ((1, 0), (2, 0), (5, 2), (8, 2), (200, 2)):
        used[0] = used_seconds * SECOND_NS
        samples = desk.tick(second * SECOND_NS)
        left.append(allowance.left_ns(second * SECOND_NS + SECOND_NS // 2) > 0)  # and when the next event comes
        healths.append(any(isinstance(sample, SamplerHealth) for sample in samples))
    desk.close()

    assert left == [True, True, False, False, True]
    assert told == [False, True]
    assert healths[2]


def test_at_last_folders_are_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that were observed are looked up all the same."""
    desk = Desk(StandIn(), level="poll")
    sampler: Any = desk.sampler
    asked: list[FactQuery] = []
    monkeypatch.setattr(sampler._facts, "request", asked.append)
    query = FactQuery(1, 2, OWN_PROCESS, (b"/a",), (b"/", b"/b"), 0, unshared_folders=(b"/c",))
    for used_share in (0.99, 1.0):
        sampler.governor.used_share = used_share
        sampler._request(query)
    desk.close()

    assert asked == [query, replace(query, folders=(), unshared_folders=())]
    assert sampler.governor.left_out == {"folders": 1}


def test_above_the_budget_no_stack_is_sampled_and_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was due is counted."""
    governor = Governor(0.05, lambda: 0)
    sampling: Any = BurstSampling(KernelFs(), governor)
    asked: list[Any] = []
    monkeypatch.setattr(sampling._threads, "sample", lambda _, bursting, *__, **___: asked.append(bursting) or [])
    monkeypatch.setattr(sampling._stacks, "due", lambda *_: [SimpleNamespace(process=SimpleNamespace(pid=1))])
    monkeypatch.setattr(sampling._stacks, "record_sample", lambda *_: None)
    reader = SimpleNamespace(
        cost_ns=0, is_available=True, request=lambda one: asked.append(one) or True, consume=list,
        consume_reason=lambda: None, close=lambda: None,
    )  # fmt: skip
    monkeypatch.setattr(sampling._stacks, "_reader", reader)
    monkeypatch.setattr(sampling, "_limits", SimpleNamespace(sample=lambda *_: [], sample_memory=lambda *_: []))
    monkeypatch.setattr(sampling, "_gpus", SimpleNamespace(sample=lambda *_: []))
    one: Any = object()
    for used_share in (0.0, 2.0):
        governor.used_share = used_share
        sampling.sample(0, [one], {}, traced=False)
    sampling.close()

    assert asked == [[one], SimpleNamespace(pid=1), ()]
    assert governor.left_out == {"stacks": 1, "timelines": 1}
