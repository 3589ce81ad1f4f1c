"""Two runs beside each other: what is told as a difference, what as noise, and how it looks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timezone

import msgspec
import pytest

from ckptprof.model import Checkpoint, Kind, Report, Status, Watched
from ckptprof.report import comparison, diff, document
from ckptprof.report.clean import width as cells
from ckptprof.report.comparison import Comparison, CountComparison, LimitCounts, Side
from ckptprof.report.conditions import parse
from ckptprof.verdicts import Limit

SECOND = 1_000_000_000
_Make = Callable[..., Checkpoint]


def _side(name: str, checkpoints: list[Checkpoint]) -> Side:
    watched = Watched(start_ns=None, end_ns=None)
    return Side(selector=name, report=Report(host="h", watched=watched, checkpoints=tuple(checkpoints)))


def _saves(make: _Make, at_seconds: float, durations: list[float], limit: Limit, **changes: object) -> list[Checkpoint]:
    found = []
    for number, seconds in enumerate(durations):
        one = make(number + 1, at_seconds + number * 100, limit=limit, stall_ns=int(seconds * SECOND), **changes)
        found.append(msgspec.structs.replace(one, end_ns=one.start_ns + int(seconds * SECOND)))
    return found


@pytest.fixture
def halved(make_diagnosed: _Make) -> Comparison:
    """Return a run before and after it was made twice as fast."""
    before = _saves(make_diagnosed, 0, [10, 10.5, 11, 9.5, 10.2, 9.9], Limit.SERIALIZE)
    before[1] = msgspec.structs.replace(before[1], status=Status.INCOMPLETE)
    after = _saves(make_diagnosed, 4000, [5, 5.5, 5.1, 4.9, 5.2], Limit.DEVICE)
    restore = make_diagnosed(20, 5000, kind=Kind.RESTORE)
    return comparison.compare(_side("llm-a", [*before, restore]), _side("llm-b\x1b[2J", [*after, restore]))


@pytest.mark.parametrize("width", [80, 200])
def test_a_comparison_looks_as_agreed(
    width: int, halved: Comparison, zone: timezone, golden: Callable[[str, str], None]
) -> None:
    """The answer, each figure before and after, what limited both; nothing is wider than the terminal."""
    text = diff.render(halved, width=width, colour=False, zone=zone)

    golden(f"diff/{width}.txt", text)
    assert max(cells(line) for line in text.splitlines()) <= width


def test_what_is_told_is_more_than_noise(halved: Comparison) -> None:
    """Twice as fast is faster; equal sizes are the same; one restore on each side tells nothing."""
    saves, restores = halved.kinds
    outcomes = {figure.name: figure.outcome for figure in saves.figures}

    assert outcomes == {"duration": "faster", "stall": "shorter", "size": "same", "throughput": "higher"}
    assert {figure.outcome for figure in restores.figures} == {"few"}
    assert saves.count == CountComparison(6, 5)
    assert saves.incomplete == CountComparison(1, 0)
    assert saves.limits == (LimitCounts("serialize", 6, 0), LimitCounts("device", 0, 5))
    duration = saves.figures[0]
    assert duration.relative.estimate == pytest.approx(-0.49, abs=0.02)


def test_noise_and_too_few_are_called_so(make_diagnosed: _Make, zone: timezone) -> None:
    """The sentence that opens says it, and so does the table."""
    same = [4.0, 4.2, 3.9, 4.1, 4.3]
    noisy = comparison.compare(
        _side("a", _saves(make_diagnosed, 0, same, Limit.NONE)),
        _side("b", _saves(make_diagnosed, 900, [4.05, 4.15, 3.95, 4.25], Limit.NONE)),
    )
    few = comparison.compare(
        _side("a", _saves(make_diagnosed, 0, same[:3], Limit.NONE)),
        _side("b", _saves(make_diagnosed, 900, [8.0, 8.1, 8.2], Limit.NONE)),
    )
    texts = [diff.render(one, width=200, colour=True, zone=zone) for one in (noisy, few)]

    assert "Saves: no difference in duration beyond noise" in texts[0]
    assert "Too few saves to tell (3 vs 3): record at least 4 on each side" in texts[1]
    assert "too few to tell" in texts[1]


def test_a_change_of_just_below_all_is_a_number(make_diagnosed: _Make, zone: timezone) -> None:
    """A change goes on beyond 100 %: ">99.9 %", as of a share, would be none."""
    sides = [
        _side(name, _saves(make_diagnosed, 0, [seconds] * 5, Limit.NONE))
        for name, seconds in (("a", 1.0), ("b", 1.9996))
    ]

    assert "+100.0 %" in diff.render(comparison.compare(*sides), width=200, colour=False, zone=zone)


def test_some_bytes_of_a_header_are_no_change(make_diagnosed: _Make, zone: timezone) -> None:
    """Two equal runs are told so: a step of one digit more makes a file a few bytes longer, each time."""
    runs = [
        [msgspec.structs.replace(one, bytes=256_000_000 + more) for one in saves]
        for more, at in ((40, 0), (8, 4000))
        for saves in [_saves(make_diagnosed, at, [4.0, 4.2, 3.9, 4.1, 4.3], Limit.NONE)]
    ]

    text = diff.render(comparison.compare(_side("a", runs[0]), _side("b", runs[1])), width=120, colour=False, zone=zone)

    assert re.search(r"size median +256 MB +256 MB +0\.0 % +0\.0 % to 0\.0 % +same", text), text
    assert "<" not in text
    assert "The sizes differ" not in text


def test_different_jobs_are_named(make_diagnosed: _Make, zone: timezone) -> None:
    """Names that differ by numbers alone are runs of one job."""
    run, again, other = (
        _side(job, _saves(make_diagnosed, 0, [4.0] * 4, Limit.NONE, job=job)) for job in ("a.py-1", "a.py-23", "b.py-1")
    )
    texts = [diff.render(comparison.compare(run, one), width=200, colour=False, zone=zone) for one in (again, other)]

    assert "different jobs" not in texts[0]
    assert "Before and after are different jobs, a.py-1 and b.py-1" in texts[1]
    assert "limit: not slow" in texts[1]


def test_what_one_side_has_not_is_not_compared(make_checkpoint: _Make, zone: timezone) -> None:
    """No stall was seen, no restore was there, no verdict was made."""
    save = make_checkpoint(1, 0)
    restore = make_checkpoint(2, 60, kind=Kind.RESTORE)
    one = comparison.compare(_side("a", [save]), _side("b", [restore, make_checkpoint(3, 90, kind=Kind.COPY)]))
    text = diff.render(one, width=80, colour=False, zone=zone)

    assert "Saves: 1 before, 0 after; nothing to compare" in text
    assert "Restores: 0 before, 1 after; nothing to compare" in text
    assert "blocked" not in text
    assert [figure.outcome for figure in one.kinds[0].figures] == ["unobserved"] * 4


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("duration<-40%", True),
        ("duration<-60%", False),
        ("save_duration<-3s", True),
        ("duration>10%", False),
        ("stall<-1s", True),
        ("throughput>50%", True),
        ("size>1%", False),
        ("restore_duration>1%", None),
    ],
)
def test_conditions_hold_of_what_is_no_noise(
    text: str,
    holds: bool | None,  # noqa: FBT001 # a table of cases
    halved: Comparison,
) -> None:
    """In percent of before, or in the figure's unit; too few to tell is not judged."""
    (judged,) = comparison.evaluate(halved, parse([text], comparison.NAMES, relative=True))

    assert judged.is_met is holds


def test_conditions_of_what_is_not_there_are_not_judged(make_checkpoint: _Make, make_diagnosed: _Make) -> None:
    """Nothing on one side, or nothing to take a percentage of."""
    nothing = comparison.compare(_side("a", []), _side("b", [make_checkpoint(1, 0)]))
    zero = _saves(make_diagnosed, 0, [5.0] * 4, Limit.NONE)
    free = [msgspec.structs.replace(one, stall_ns=0) for one in zero]
    from_zero = comparison.compare(_side("a", free), _side("b", zero))
    conditions = parse(["duration>1%", "stall>1%", "stall>1s"], comparison.NAMES, relative=True)

    assert [one.is_met for one in comparison.evaluate(nothing, conditions)] == [None, None, None]
    judged = comparison.evaluate(from_zero, conditions)
    assert [one.is_met for one in judged] == [False, None, True]
    assert judged[1].explanation == "some values are zero, so a change has no percentage"
    assert judged[2].explanation == "+5.00 s"


def test_the_document_has_the_same(halved: Comparison) -> None:
    """Names as they are, numbers in base units."""
    body = json.loads(document.dump(diff.document(halved)))
    duration = body["kinds"][0]["figures"][0]

    assert body["after"]["selector"] == "llm-b\x1b[2J"
    assert duration["unit"] == "seconds"
    assert duration["before"]["number"] == 5  # of six one was broken off
    assert duration["change"]["estimate"] == pytest.approx(-4.95, abs=0.2)
    assert duration["outcome"] == "faster"
