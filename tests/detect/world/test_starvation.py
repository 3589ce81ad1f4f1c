"""When the sampler came late: said of what it touched, and of nothing else."""

from __future__ import annotations

import pytest

from ckptprof.detect.world.starvation import Starvation
from ckptprof.model import LEFT_OUT
from ckptprof_collectors.samples import SamplerHealth

SECOND_NS = 1_000_000_000


def health(
    starved_ns: int | None, left_out: dict[str, int] | None = None, ticks: int = 1, lost: int = 0
) -> SamplerHealth:
    """Return an account of a sampler with this lateness."""
    return SamplerHealth(
        ticks=ticks, late_ticks=1, lateness_ns=0, dropped_frames=lost, cpu_ns=0, rss_bytes=None, watched_processes=0,
        known_processes=0, read_ns={}, faults={}, starved_ns=starved_ns, left_out=left_out,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("start", "end", "said"),
    [(0, 7, []), (7, 8.2, []), (6, 9, ["1.0 s"]), (7, 20, ["2.0 s"]), (9.5, 9.6, ["0.1 s"]), (10, 20, [])],
)
def test_it_is_said_of_what_it_touched(start: float, end: float, said: list[str]) -> None:
    """A tick came at 10 s that was due at 8 s; a touch is told from a quarter of a second on, or if it was all."""
    starvation = Starvation()
    for at, starved in ((5, 0), (10, 2), (15, 2)):
        starvation.observe(at * SECOND_NS, health(starved * SECOND_NS))

    found = starvation.limitations_during(int(start * SECOND_NS), int(end * SECOND_NS))

    assert [sentence.split(":")[0] for sentence in found] == [f"what happened in {share}" for share in said]


@pytest.mark.parametrize(
    ("start", "end", "said"), [(7, 8, True), (10.05, 11, True), (6, 7.8, False), (10.2, 12, False)]
)
def test_what_was_polled_may_have_gone_on_while_nobody_looked(start: float, end: float, *, said: bool) -> None:
    """Its begin and its end are where it was seen; those of what the trace tells are its own."""
    starvation = Starvation()
    for at, starved in ((5, 0), (10, 2)):
        starvation.observe(at * SECOND_NS, health(starved * SECOND_NS))
    edges = int(start * SECOND_NS), int(end * SECOND_NS)

    assert [sentence.split(":")[0] for sentence in starvation.limitations_during(*edges, polled=True)] == (
        ["whether it extends into 2.0 s before or after"] if said else []
    )
    assert starvation.limitations_during(*edges) == []


def test_who_does_not_tell_was_not_late() -> None:
    """A recording of an older version has no such count."""
    starvation = Starvation()
    starvation.observe(5 * SECOND_NS, health(None))

    assert starvation.limitations_during(0, 10 * SECOND_NS) == []


def test_what_is_old_is_forgotten() -> None:
    """And what is counted since goes on from there."""
    starvation = Starvation()
    starvation.observe(5 * SECOND_NS, health(SECOND_NS))
    starvation.forget_before(6 * SECOND_NS)
    starvation.observe(9 * SECOND_NS, health(2 * SECOND_NS))

    assert starvation.limitations_during(0, 6 * SECOND_NS) == []
    assert len(starvation.limitations_during(0, 10 * SECOND_NS)) == 1


@pytest.mark.parametrize(
    ("start", "end", "works"),
    [(1, 4, ""), (1, 6, "stacks"), (9, 16, "stacks, timelines"), (21, 30, ""), (16, 30, "stacks, timelines")],
)
def test_what_was_left_out_for_the_budget_is_a_limitation_of_that_time(start: int, end: int, works: str) -> None:
    """Not what was left out of other processes' files, nor what an older sampler did not count."""
    starvation = Starvation()
    for at, left_out in (
        (5, None), (10, {"files": 9, "stacks": 1}), (15, {"files": 20, "stacks": 1}),
        (20, {"files": 20, "stacks": 2, "timelines": 7}), (25, {"stacks": 2, "timelines": 7}),
    ):  # fmt: skip
        starvation.observe(at * SECOND_NS, health(0, left_out))

    found = starvation.limitations_during(start * SECOND_NS, end * SECOND_NS)

    assert found == ([f"{works}: {LEFT_OUT}"] if works else [])
    starvation.forget_before(30 * SECOND_NS)
    assert starvation.limitations_during(0, 30 * SECOND_NS) == []


@pytest.mark.parametrize(("start", "end", "share"), [(5, 10, 0), (11, 14, 0.4), (5, 15, 0.2), (15, 20, 0), (20, 22, 1)])
def test_what_was_lost_is_lost_to_that_time_alone_in_proportion(start: int, end: int, share: float) -> None:
    """Of 50 ticks until 15 s the recorder did not get 20, of those until 25 s none; with a trace there are more."""
    starvation = Starvation()
    for at, ticks, lost in ((5, 50, 0), (10, 100, 0), (15, 150, 20), (20, 400, 20), (25, 500, 120)):
        starvation.observe(at * SECOND_NS, health(0, ticks=ticks, lost=lost))
    span = start * SECOND_NS, end * SECOND_NS

    assert starvation.lost_share(*span) == pytest.approx(share)
    assert [one.split(":")[0] for one in starvation.limitations_during(*span)] == (
        [f"{100 * share:.0f} % of its samples"] if share else []
    )
