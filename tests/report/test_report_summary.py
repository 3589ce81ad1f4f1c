"""The figures that open a report."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from ckptprof.figures import quantile
from ckptprof.model import Checkpoint, Gap, Kind, Mode, Report, Watched
from ckptprof.report.summary import summarise, without_copies

SECOND = 1_000_000_000


def test_time_that_overlaps_counts_once(make_checkpoint: Callable[..., Checkpoint]) -> None:
    """Two jobs that save at the same time do not make the run take longer than it did."""
    first, second, third = make_checkpoint(1, 0), make_checkpoint(2, 2), make_checkpoint(3, 100)
    watched = Watched(start_ns=first.start_ns, end_ns=first.start_ns + 200 * SECOND)
    found = summarise(Report(host=None, watched=watched, checkpoints=(third, first, second)))

    assert found.share == pytest.approx(10.24 / 200)
    assert [kind.number for kind in found.kinds] == [3]


def test_gaps_are_not_watched_time() -> None:
    """Gaps that overlap count once."""
    gaps = (Gap(start_ns=10, end_ns=30, reason="a"), Gap(start_ns=20, end_ns=40, reason="b"))
    found = summarise(Report(host=None, watched=Watched(start_ns=0, end_ns=100, gaps=gaps), checkpoints=()))

    assert (found.watched_ns, found.gap_ns, found.share) == (70, 30, 0.0)


def test_nothing_watched_has_no_share(make_checkpoint: Callable[..., Checkpoint]) -> None:
    """Not zero: not known."""
    report = Report(host=None, watched=Watched(start_ns=None, end_ns=None), checkpoints=(make_checkpoint(1, 0),))

    assert summarise(report).share is None
    assert summarise(report).watched_ns is None


def test_kinds_are_apart(reports: dict[str, Report]) -> None:
    """Saves and restores have their own figures."""
    save, restore = summarise(reports["run"]).kinds

    assert (save.kind, save.number, restore.kind, restore.number) == (Kind.SAVE, 4, Kind.RESTORE, 1)
    assert save.median_seconds == save.p95_seconds == pytest.approx(4.12)


def test_the_median_of_two_lies_between_them(make_checkpoint: Callable[..., Checkpoint]) -> None:
    """As in a plan and in a comparison, which is told of the same saves."""
    first, second = make_checkpoint(1, 0), make_checkpoint(2, 100)
    pair = (first, msgspec.structs.replace(second, end_ns=second.start_ns + 8 * SECOND))
    (save,) = summarise(Report(host=None, watched=Watched(start_ns=0, end_ns=1), checkpoints=pair)).kinds

    assert save.median_seconds == pytest.approx(6.06)
    assert save.p95_seconds == 8


def test_what_saves_blocked_is_added(reports: dict[str, Report]) -> None:
    """Over those of which it was seen; modes, caches and what was broken off are counted."""
    save, restore = summarise(reports["course"]).kinds

    assert (save.number, save.incomplete, save.stalled, save.stall_ns) == (4, 1, 2, 4_230_000_000)
    assert save.modes == ((Mode.SYNC, 1), (Mode.ASYNC, 2))
    assert restore.caches == (("cold", 1), ("warm", 1))


def test_copies_are_left_out_and_counted(reports: dict[str, Report]) -> None:
    """As the store does for who does not ask for them; they are no time in saves or restores."""
    both = msgspec.structs.replace(
        reports["course"], checkpoints=(*reports["course"].checkpoints, *reports["copies"].checkpoints)
    )
    kept = without_copies(both)

    assert kept.checkpoints == reports["course"].checkpoints
    assert kept.copies_left_out == 6
    assert summarise(both).share == summarise(kept).share


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([5], 0.95, 5),
        ([1, 2], 0.5, 1),
        ([3, 1, 2], 0.5, 2),
        (list(range(1, 101)), 0.95, 95),
        (list(range(1, 21)), 0.95, 19),
    ],
)
def test_quantile_is_one_that_happened(values: list[int], share: float, expected: int) -> None:
    """Nearest rank."""
    assert expected == quantile(values, share)
