"""How often the sampler looks: what moves between two looks is seen as one."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from standintrace import Desk, StandIn

from ckptprof.service.sampler import main


@pytest.mark.parametrize(
    ("level", "watched", "awake", "bursting", "hz"),
    [
        ("poll", False, False, False, 2),  # an idle host
        ("trace", False, False, False, 2),
        ("poll", True, False, False, 10),
        ("trace", True, False, False, 2),  # the trace tells when it begins
        ("poll", True, True, False, 10),
        ("trace", True, True, False, 5),  # what is counted does not depend on when it is read
        ("poll", True, True, True, 25),
        ("trace", True, True, True, 10),
    ],
)
def test_looks_come_as_often_as_what_goes_on_asks_for(
    monkeypatch: pytest.MonkeyPatch, level: str, *, watched: bool, awake: bool, bursting: bool, hz: float
) -> None:
    """By the clock, whatever each look takes."""
    desk = Desk(StandIn(), level=level)
    sampler: Any = desk.sampler
    now_ns = 0
    looks_ns: list[int] = []

    def tick(at_ns: int) -> int:
        nonlocal now_ns
        looks_ns.append(at_ns)
        sampler.stopping = at_ns >= 10e9
        now_ns += 3_000_000  # which is what it takes
        return int(sampler._period_ns(at_ns, bursting=bursting))

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
