"""How often the sampler looks: what moves between two looks is seen as one."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from standintrace import Desk, StandIn

from ckptprof.service.sampler import main
from ckptprof.service.sampler.activity import Activity
from ckptprof.service.sampler.main import CALM_NS, CALM_TRACED_NS

SECOND_NS = 1_000_000_000


@pytest.mark.parametrize(
    ("level", "watched", "awake", "urgent", "hz"),
    [
        ("poll", False, False, "", 2),  # an idle host
        ("trace", False, False, "", 2),
        ("poll", True, False, "", 10),
        ("trace", True, False, "", 2),  # the trace tells when it begins
        ("poll", True, True, "", 10),
        ("trace", True, True, "", 5),  # what is counted does not depend on when it is read
        ("poll", True, True, "moves", 25),
        ("trace", True, True, "moves", 10),
        ("trace", True, True, "maps", 25),
    ],
)
def test_looks_come_as_often_as_what_goes_on_asks_for(
    monkeypatch: pytest.MonkeyPatch, level: str, urgent: str, hz: float, *, watched: bool, awake: bool
) -> None:
    """By the clock, whatever each look takes."""
    desk = Desk(StandIn(), level=level)
    activities = [Activity(has_mappings=urgent == "maps")] if urgent else []
    sampler: Any = desk.sampler
    now_ns = 0
    looks_ns: list[int] = []

    def tick(at_ns: int) -> int:
        nonlocal now_ns
        looks_ns.append(at_ns)
        sampler.stopping = at_ns >= 10e9
        now_ns += 3_000_000  # which is what it takes
        return int(sampler._period_ns(at_ns, activities))

    def wait(until_ns: int) -> None:
        nonlocal now_ns
        now_ns = max(now_ns, until_ns)

    clock = SimpleNamespace(**{**vars(time), "monotonic_ns": lambda: now_ns})
    with monkeypatch.context() as patched:
        patched.setattr(main, "time", clock)
        patched.setattr(sampler, "tick", tick)
        patched.setattr(sampler, "_wait", wait)
        patched.setattr(sampler, "_finish", lambda: None)
        if watched:
            patched.setitem(sampler._population.watched, 1, SimpleNamespace())
        if awake:
            patched.setitem(sampler._population.rounds.awake, 1, SimpleNamespace())
        sampler.go_on()
    desk.close()

    assert len(looks_ns) - 1 == pytest.approx(10 * hz, abs=1)


@pytest.mark.parametrize(("is_whole", "most"), [(True, 1 + 1e9 / CALM_TRACED_NS), (False, 1 + 1e9 / CALM_NS)])
def test_events_without_end_wake_the_sampler_so_often_only(
    monkeypatch: pytest.MonkeyPatch, most: float, *, is_whole: bool
) -> None:
    """What happens in a watched folder need not be heard at once where the trace tells of it; no tick comes late."""
    desk = Desk(StandIn(is_whole=is_whole))
    sampler: Any = desk.sampler
    (events_fd, *_) = sampler._folders.filenos()
    now_ns = wakes = 0

    def poll(_: float) -> list[tuple[int, int]]:
        nonlocal wakes
        wakes += 1
        return [(events_fd, 1)]

    def sleep(seconds: float) -> None:
        nonlocal now_ns
        now_ns += max(1, round(seconds * 1e9))

    clock = SimpleNamespace(**{**vars(time), "monotonic_ns": lambda: now_ns, "sleep": sleep})
    with monkeypatch.context() as patched:
        patched.setattr(main, "time", clock)
        patched.setattr(sampler, "_poll", SimpleNamespace(poll=poll))
        sampler._wait(SECOND_NS)
    desk.close()

    assert wakes <= most
    assert now_ns == SECOND_NS
