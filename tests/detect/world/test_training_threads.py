"""What is usual for a thread that trains: of its last seconds without a save, and not of single looks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.detect.observed import frame

from ckptprof.detect.world.training_threads import TrainingThreads
from ckptprof_collectors.samples import ThreadTime

MS = 1_000_000
SECOND = 1000 * MS
TRAINER = (100, 1000)


def looked_at(
    until_ms: int, every_ms: int, share: Callable[[int], float], wakes_until_ms: int | None = None
) -> TrainingThreads:
    """Return looks at a thread that runs for a share of the time, which may change from look to look."""
    book, ran_ns = TrainingThreads(), 0
    for at_ms in range(0, until_ms + 1, every_ms):
        slices = at_ms if wakes_until_ms is None else min(at_ms, wakes_until_ms)
        book.take(frame(at_ms * MS, max(0, at_ms - every_ms) * MS, ThreadTime(*TRAINER, 100, ran_ns, 0, slices)))
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
    book.note_save(20 * SECOND, save_ends_s * SECOND)

    assert (book.rhythm(TRAINER, save_ends_s * SECOND) is not None) == known


@pytest.mark.parametrize(("seen_ms", "known"), [(300, False), (700, True)])
def test_of_less_than_half_a_second_nothing_is_usual(seen_ms: int, known: bool) -> None:  # noqa: FBT001 - a case
    """A process that saves right after its start."""
    assert (looked_at(seen_ms, 100, lambda _: 0.9).rhythm(TRAINER, seen_ms * MS) is not None) == known


def test_looks_that_are_close_together_do_not_tell_of_pauses() -> None:
    """It waits for its GPU every other twentieth of a second: it runs half of the time, and is not held."""
    book = looked_at(5000, 50, lambda at_ms: float(at_ms // 50 % 2))

    assert {one.share for one in book.stretches(TRAINER, 0, 5 * SECOND)} == {0.5}
