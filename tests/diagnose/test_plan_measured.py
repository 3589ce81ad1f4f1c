"""What recorded checkpoints tell a plan."""

from __future__ import annotations

import pytest

from ckptprof.diagnose.plan.basis import GivenFigures, Origin, measure
from ckptprof.diagnose.plan.checkpoint_plan import plan
from ckptprof.model import Checkpoint, Kind, Level, Mode, Pattern, Status

SECOND = 1_000_000_000


def checkpoint(at_seconds: float, **changes: object) -> Checkpoint:
    """Return a save of 1 GB in 4 s, changed as told."""
    start_ns = round((1_700_000_000 + at_seconds) * SECOND)
    values: dict[str, object] = {
        "uid": str(at_seconds), "kind": Kind.SAVE, "job": "train", "framework": None, "step": None, "ranks": 4,
        "start_ns": start_ns, "end_ns": start_ns + 4 * SECOND, "bytes": 10**9, "files": 1, "path": None, "writers": (),
        "pattern": Pattern(class_=None), "level": Level.POLL, "limitations": (), "evidence": (), "confidence": 1.0,
    }  # fmt: skip
    return Checkpoint(**(values | changes))  # type: ignore[arg-type]  # checked by name at run time


def test_medians_of_one_job() -> None:
    """Of the job that saved last; other jobs, and copies do not count; an incomplete save only by when it began."""
    found = measure(
        [
            checkpoint(0, job="other", bytes=7),
            checkpoint(10, stall_ns=SECOND),
            checkpoint(110, stall_ns=3 * SECOND, bytes=3 * 10**9),
            checkpoint(200, status=Status.INCOMPLETE, bytes=5),
            checkpoint(310, stall_ns=2 * SECOND, bytes=2 * 10**9, ranks=8),
            checkpoint(320, kind=Kind.COPY, job="rsync"),
            checkpoint(330, kind=Kind.RESTORE, end_ns=(1_700_000_000 + 332) * SECOND),
        ]
    )

    assert found is not None
    assert (found.job, found.saves, found.other_jobs, found.ranks) == ("train", 3, 1, 8)
    figures = [found.size, found.cost, found.duration, found.interval, found.restore]
    assert [figure.value for figure in figures if figure] == [2e9, 2.0, 4.0, 100.0, 2.0]
    assert {figure.origin for figure in figures if figure} == {Origin.MEASURED}
    assert found.cost is not None
    assert found.cost.text == "median stall of 3 saves"
    assert found.size is not None
    assert found.size.text == "median size of 3 saves"


@pytest.mark.parametrize(
    ("saves", "value", "text"),
    [
        ([{"stall_ns": 2 * SECOND}, {}], 2.0, "stall of 1 of 2 saves"),
        ([{"stall_ns": 0}], 0.0, "stall of 1 save"),
        ([{"mode": Mode.SYNC}, {"mode": Mode.ASYNC}], 4.0, "no stall observed: duration of 1 sync save"),
    ],
)
def test_cost(saves: list[dict[str, object]], value: float, text: str) -> None:
    """The stall, or for want of it how long sync saves took, told as such."""
    found = measure([checkpoint(at, **changes) for at, changes in enumerate(saves)])

    assert found is not None
    assert found.cost is not None
    assert (found.cost.value, found.cost.text) == (value, text)


@pytest.mark.parametrize(
    ("modes", "beside"),
    [((Mode.SYNC,) * 3, False), ((Mode.SYNC, Mode.SYNC, Mode.ASYNC), True), ((Mode.SYNC, None, Mode.SYNC), True)],
)
def test_sync_saves_are_not_said_to_be_written_beside_training(modes: tuple[Mode | None, ...], *, beside: bool) -> None:
    """Their stall is a little shorter than their duration now and then."""
    measured = measure([checkpoint(at * 100, mode=mode, stall_ns=39 * SECOND // 10) for at, mode in enumerate(modes)])

    assert any("An async save" in note for note in plan(GivenFigures(mttf_seconds=3600), measured).notes) is beside


def test_what_was_not_seen_is_not_told() -> None:
    """One save of unknown mode and ranks, over in no time."""
    one = checkpoint(0, ranks=None)
    found = measure([checkpoint(0, ranks=None, end_ns=one.start_ns, mode=Mode.SYNC)])

    assert found is not None
    assert (found.cost, found.duration, found.interval, found.restore, found.ranks) == (None,) * 5


@pytest.mark.parametrize("changes", [None, {"kind": Kind.RESTORE}, {"status": Status.INCOMPLETE}, {"bytes": 0}])
def test_nothing_to_measure(changes: dict[str, object] | None) -> None:
    """No complete save that holds anything."""
    assert measure([] if changes is None else [checkpoint(0, **changes)]) is None
