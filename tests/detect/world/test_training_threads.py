"""What is usual for a thread that trains: of its last seconds without a save, and not of single looks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.detect.observed import frame

from ckptprof.detect.world.counter_history import CounterHistory, TimedCounters
from ckptprof.detect.world.jobs import Jobs
from ckptprof.detect.world.training_threads import TrainingThreads
from ckptprof_collectors.samples import ThreadTime

MS = 1_000_000
SECOND = 1000 * MS
TRAINER = (100, 1000)


def looked_at(
    until_ms: int, every_ms: int, share: Callable[[int], float], wakes_until_ms: int | None = None
) -> TrainingThreads:
    """Return looks at a thread that runs for a share of the time, which may change from look to look."""
    book, ran_ns = TrainingThreads(Jobs()), 0
    for at_ms in range(0, until_ms + 1, every_ms):
        slices = at_ms if wakes_until_ms is None else min(at_ms, wakes_until_ms)
        book.ingest(frame(at_ms * MS, max(0, at_ms - every_ms) * MS, ThreadTime(*TRAINER, 100, ran_ns, 0, slices)))
        ran_ns += round(share(at_ms) * every_ms * MS)
    return book


def test_what_a_thread_did_before_it_trained_is_not_usual() -> None:
    """It loaded its data for twenty seconds, mostly waiting; it has computed for five."""
    rhythm = looked_at(25_000, 100, lambda at_ms: 0.2 if at_ms < 20_000 else 0.9).rhythm(TRAINER, 25 * SECOND)

    assert rhythm is not None
    assert rhythm.share == pytest.approx(0.9)


@pytest.mark.parametrize(("share", "usual"), [(0.02, 0.9), (0.07, 0.07)])
def test_a_thread_that_is_held_already_has_the_rhythm_that_it_had_before(share: float, usual: float) -> None:
    """It neither wakes nor runs, for longer than it takes to know what is usual; one that computes is not held."""
    book = looked_at(20_000, 100, lambda at_ms: 0.9 if at_ms < 10_000 else share, wakes_until_ms=10_000)
    rhythm = book.rhythm(TRAINER, 20 * SECOND)

    assert rhythm is not None
    assert rhythm.share == pytest.approx(usual)


@pytest.mark.parametrize(("save_ends_s", "known"), [(70, True), (85, False)])
def test_what_is_usual_is_known_through_a_save_of_most_of_a_minute(save_ends_s: int, known: bool) -> None:  # noqa: FBT001 - a case
    """After a longer one it may be in another phase."""
    book = looked_at(save_ends_s * 1000, 100, lambda at_ms: 0.9 if at_ms < 20_000 else 0.0)
    book.record_save(Jobs().job_of(TRAINER), 20 * SECOND, save_ends_s * SECOND)

    assert (book.rhythm(TRAINER, save_ends_s * SECOND) is not None) == known


def test_what_another_job_saves_is_none_of_its_saves() -> None:
    """Of a job alongside that saved last, a trainer was said to have built what it wrote in 0.2 instead of 1.1 s."""
    book = TrainingThreads(Jobs())
    for job, at_s in (("pid-1", 1), ("pid-2", 5)):
        book.record_save(job, at_s * SECOND, (at_s + 1) * SECOND)

    assert [book.last_save_end_ns((pid, 1), 9 * SECOND) for pid in (1, 2, 3)] == [2 * SECOND, 6 * SECOND, 0]


@pytest.mark.parametrize(("seen_ms", "known"), [(300, False), (700, True)])
def test_of_less_than_half_a_second_nothing_is_usual(seen_ms: int, known: bool) -> None:  # noqa: FBT001 - a case
    """A process that saves right after its start."""
    assert (looked_at(seen_ms, 100, lambda _: 0.9).rhythm(TRAINER, seen_ms * MS) is not None) == known


def test_looks_that_are_close_together_do_not_tell_of_pauses() -> None:
    """It waits for its GPU every other twentieth of a second: it runs half of the time, and is not held."""
    book = looked_at(5000, 50, lambda at_ms: float(at_ms // 50 % 2))

    assert {one.share for one in book.stretches(TRAINER, 0, 5 * SECOND)} == {0.5}


@pytest.mark.parametrize("every_ms", [20, 30, 100, 700])
@pytest.mark.parametrize("until_ms", [300, 70_000])
def test_what_was_done_of_late_is_told_as_all_of_it_is(every_ms: int, until_ms: int) -> None:
    """From its end on, and only as far as it is asked for: by looks that are close together, far apart, or both."""
    book, ran_ns, at_ms = TrainingThreads(Jobs()), 0, 0
    while at_ms < until_ms:
        at_ms += every_ms if at_ms % 1000 < 800 else 90
        ran_ns += at_ms % 7 * MS
        book.ingest(frame(at_ms * MS, (at_ms - 1) * MS, ThreadTime(*TRAINER, 100, ran_ns, 0, at_ms // 10)))
    for start_ns, end_ns in ((0, until_ms * MS), (5 * SECOND + 3, until_ms * MS - 7), (10 * SECOND, 11 * SECOND)):
        whole = list(book.stretches(TRAINER, start_ns, end_ns))

        assert list(book.recent_stretches(TRAINER, start_ns, end_ns)) == whole[::-1]


@pytest.fixture
def met(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many looks were gone over, each time that some were."""
    numbers: list[int] = []
    looks = CounterHistory.samples

    def counted(history: CounterHistory, start_ns: int, end_ns: int) -> list[TimedCounters]:
        found = looks(history, start_ns, end_ns)
        numbers.append(len(found))
        return found

    monkeypatch.setattr(CounterHistory, "samples", counted)
    return numbers


@pytest.mark.parametrize(("minutes", "is_kept"), [(10, True), (20, False)])
def test_what_is_asked_for_again_is_not_gone_over_again(minutes: int, met: list[int], *, is_kept: bool) -> None:
    """As long as there is room for it."""
    book = looked_at(90_000, 100, lambda _: 0.9)
    for asked in [*range(minutes)] * 2:
        book.stretches(TRAINER, asked * SECOND, (asked + 60) * SECOND)

    assert (len(met) == minutes) is is_kept


def test_what_is_usual_is_found_in_a_few_looks(met: list[int]) -> None:
    """It needs five seconds without a save, and does not go over the minute before them."""
    looked_at(60_000, 100, lambda _: 0.9).rhythm(TRAINER, 60 * SECOND)

    assert sum(met) < 100
