"""How often the sampler looks: what moves between two looks is seen as one."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace
from typing import Any

import pytest
from standintrace import Desk, StandIn, start_ticks
from tests.patience import PATIENCE_SECONDS

from ckptprof.service.sampler import sampler_loop
from ckptprof.service.sampler.activity import ProcessActivity
from ckptprof.service.sampler.sampler_loop import EVENT_PAUSE_NS, TRACED_EVENT_PAUSE_NS
from ckptprof_collectors.samples import FileLifeEvent, Frame, Unavailable

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
    activities = [ProcessActivity(has_mappings=urgent == "maps")] if urgent else []
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
        patched.setattr(sampler_loop, "time", clock)
        patched.setattr(sampler, "tick", tick)
        patched.setattr(sampler, "_wait", wait)
        patched.setattr(sampler, "_finish", lambda: None)
        if watched:
            patched.setitem(sampler._population.watched, 1, SimpleNamespace())
        if awake:
            patched.setitem(sampler._population.rounds.awake, 1, SimpleNamespace())
        sampler.resume()
    desk.close()

    assert len(looks_ns) - 1 == pytest.approx(10 * hz, abs=1)


@pytest.mark.parametrize(
    ("level", "used_share", "woken", "most", "waited_ns"),
    [
        ("trace", 0.9, False, 1 + 1e9 / TRACED_EVENT_PAUSE_NS, SECOND_NS),
        ("poll", 0.9, False, 1 + 1e9 / EVENT_PAUSE_NS, SECOND_NS),
        ("trace", 0.9, True, 1, 0),
        ("poll", 0.9, True, 1, 0),
        ("trace", 0.95, True, 1, SECOND_NS),
        ("poll", 0.95, False, 11, SECOND_NS),
        ("poll", 0.95, True, 1, SECOND_NS // 10),
    ],
)
def test_events_without_end_wake_the_sampler_so_often_only(
    monkeypatch: pytest.MonkeyPatch, *, level: str, used_share: float, woken: bool, most: float, waited_ns: int
) -> None:
    """Where the trace reports files, events may wait; above the CPU budget they wait for the tick, polled 100 ms."""
    desk = Desk(StandIn(), level=level)
    sampler: Any = desk.sampler
    sampler.governor.used_share = used_share
    sampler._folders.is_woken = woken
    (events_fd, *_) = sampler._folders.filenos()
    now_ns = wakes = 0

    def poll(_: float) -> list[tuple[int, int]]:
        nonlocal wakes
        wakes += 1
        return [(events_fd, 1)]

    def rest(calm_ns: int) -> None:
        nonlocal now_ns
        now_ns += max(1, calm_ns)

    clock = SimpleNamespace(**{**vars(time), "monotonic_ns": lambda: now_ns})
    with monkeypatch.context() as patched:
        patched.setattr(sampler_loop, "time", clock)
        patched.setattr(sampler, "_poll", SimpleNamespace(poll=poll))
        patched.setattr(sampler, "_pause", rest)
        sampler._wait(SECOND_NS)
    desk.close()

    assert wakes <= most
    assert now_ns == waited_ns


def test_what_the_recorder_says_is_heard_while_events_rest() -> None:
    """Nor does a mapping wait, whose pages are counted from when it is known."""
    trace = StandIn()
    desk = Desk(trace)
    for fd in (desk.recorder, trace.wake[1]):
        began = time.monotonic()
        os.write(fd, b"x")
        desk.sampler._pause(int(PATIENCE_SECONDS * 1e9))
        assert sampler_loop.EVENT_PAUSE_NS / 1e9 <= time.monotonic() - began < PATIENCE_SECONDS
        os.read(desk.sampler._control_fd if fd == desk.recorder else trace.wake[0], 64)
    desk.close()


def test_a_mapping_is_looked_at_soon_while_nothing_else_stirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only looks tell its pages; but a crowd of mappings makes no more looks than a burst does."""
    mapped = FileLifeEvent(1, "mapped", os.getpid(), start_ticks(os.getpid()), 1, 1, 1, None, "/ckpt/model.bin")
    trace = StandIn([[mapped]])
    desk = Desk(trace)
    sampler: Any = desk.sampler
    monkeypatch.setattr(sampler._tracing, "filter_reported", lambda seen, _: list(seen))
    os.write(trace.wake[1], b"x")
    began_ns = time.monotonic_ns()
    sampler._wait(began_ns + int(PATIENCE_SECONDS * 1e9))
    waited_ns = time.monotonic_ns() - began_ns
    desk.close()

    assert SECOND_NS / 25 <= waited_ns < PATIENCE_SECONDS * 1e9


@pytest.mark.parametrize(("ago_ns", "calm"), [(SECOND_NS, False), (10 * SECOND_NS, True)])
def test_it_is_calm_some_seconds_after_a_burst(ago_ns: int, *, calm: bool) -> None:
    """Then a read that is held may be noticed later."""
    desk = Desk(StandIn())
    desk.sampler._last_burst_ns = time.monotonic_ns() - ago_ns
    assert desk.sampler.is_calm == calm
    desk.close()


def test_free_memory_goes_back_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of what a search of folders or a burst took is free soon after."""
    desk = Desk(StandIn(), level="poll")
    began_ns, at_s, released = time.monotonic_ns(), 0, list[int]()
    monkeypatch.setattr(sampler_loop.heap, "release_free", lambda: released.append(at_s))
    for at_s in range(0, 130, 10):
        desk.tick(began_ns + at_s * SECOND_NS)
    desk.close()

    assert released == [0, 60, 120]


def test_a_frame_that_read_nothing_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty one shows until when processes were quiet; every other tick of an idle host reads nothing."""
    desk, sent, some = Desk(StandIn(), level="poll"), list[int](), (Unavailable("wires", "none"),)
    monkeypatch.setattr(sampler_loop, "pack", lambda frame: sent.append(frame.at_ns) or b"")
    for at_ns, read in enumerate([(), ("processes",), (), ("disks",), (), ("disks",)]):
        desk.sampler._send(Frame(at_ns, at_ns, read, some if read == ("disks",) else ()))
    monkeypatch.undo()
    desk.close()

    assert sent == [1, 3, 5]
