"""The plan on a terminal and as a document; the texts are in tests/golden."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec
import pytest
from tests.report.schemas import validate

from ckptprof.diagnose.plan.basis import GivenFigures, MeasuredFigures, Origin, SourcedFigure
from ckptprof.diagnose.plan.checkpoint_plan import CheckpointPlan, plan
from ckptprof.report.clean import width as cells
from ckptprof.report.document import dump, to_document
from ckptprof.report.plan import render


def _seen(value: float, text: str) -> SourcedFigure:
    return SourcedFigure(value=value, origin=Origin.MEASURED, text=text)


RECORDED = MeasuredFigures(
    job="train.py", saves=9, costs=8, other_jobs=2, may_be_async=True, ranks=16,
    size=_seen(1.12e12, "median size of 9 saves"), cost=_seen(95.0, "median stall of 8 of 9 saves"),
    duration=_seen(130.0, "median duration of 9 saves"), rate=_seen(8.7e9, "median rate of 9 saves"),
    interval=_seen(3600.0, "median between 9 saves"), restore=_seen(75.0, "median duration of 2 restores"),
)  # fmt: skip
PLANS: dict[str, tuple[GivenFigures, MeasuredFigures | None]] = {
    "micron": (GivenFigures(size_bytes=5e12, gpus=24_000), None),
    "given": (
        GivenFigures(
            parameters=405e9, gpus=16_384, failures=419, failures_seconds=54 * 86_400, write_bytes_per_second=1e12,
            read_bytes_per_second=2e12, free_bytes=1e14, keep=3, step_seconds=12.5,
        ),
        None,
    ),
    "recorded": (GivenFigures(mttf_seconds=3 * 3600, gpus=64, free_bytes=2.5e13), RECORDED),
    "least": (GivenFigures(mttf_seconds=3600), None),
}  # fmt: skip


@pytest.fixture(params=PLANS)
def made(request: pytest.FixtureRequest) -> CheckpointPlan:
    """Return each plan in turn."""
    return plan(*PLANS[request.param])


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("name", ["micron", "given", "recorded"])
def test_golden(name: str, width: int, golden: Callable[[str, str], None]) -> None:
    """Someone looked at these."""
    golden(f"plan/{name}-{width}.txt", render(plan(*PLANS[name]), width=width, colour=False))


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_lines_keep_to_the_width(width: int, made: CheckpointPlan) -> None:
    """And end in a newline, without spaces before it."""
    text = render(made, width=width, colour=False)

    assert text.endswith("\n")
    assert max(cells(line) for line in text.splitlines()) <= width
    assert all(line == line.rstrip() for line in text.splitlines())


def test_colour_is_only_added(made: CheckpointPlan) -> None:
    """The same text, with the advised rule in green."""
    plain, coloured = (render(made, width=120, colour=colour) for colour in (False, True))

    assert "\x1b[1;32m> " in coloured
    assert "\x1b" not in plain
    for code in ("\x1b[1;32m", "\x1b[1m", "\x1b[91m", "\x1b[0m"):
        coloured = coloured.replace(code, "")
    assert coloured == plain


def test_document_fits_its_schema(made: CheckpointPlan) -> None:
    """As strict as the others: every field described, none missing."""
    body = json.loads(dump(to_document(made)))
    validate("plan", body)

    assert body["basis"]["mttf_seconds"]["value"] == made.basis.mttf.value
    assert body["advice"]["interval_seconds"] == made.advice.interval_seconds


def test_every_figure_says_where_it_came_from() -> None:
    """Given, measured from so many saves, assumed or worked out."""
    text = " ".join(render(plan(*PLANS["recorded"]), width=200, colour=False).split())

    for told in (
        "Failure every 3 h 00 min (given)",
        "1.12 TB (measured: median size of 9 saves)",
        "Save blocks training 1 min 35 s (measured: median stall of 8 of 9 saves)",
        "Restart 5 min 00 s (assumed: ",
        "Today every 1 h 00 min (measured: median between 9 saves)",
        "2 other jobs were left out",
    ):
        assert told in text


@pytest.mark.parametrize("saves", [1, 2, 3])
def test_too_few_saves_advise_nothing(saves: int) -> None:
    """Two short saves of a demo are no reason to save every 103 days; what was measured is told all the same."""
    few = msgspec.structs.replace(RECORDED, saves=saves, costs=saves)
    text = " ".join(render(plan(GivenFigures(gpus=1), few), width=200, colour=False).split())
    given = render(plan(GivenFigures(gpus=1, cost_seconds=2), few), width=200, colour=False)

    assert ("at least 3 needed to estimate the cost of one; record more, or give --cost" in text) == (saves < 3)
    assert ("Storage" in text) == ("Rules" in text) == (saves >= 3)
    assert "Save blocks training 1 min 35 s (measured" in text
    assert "not known yet" not in given


@pytest.mark.parametrize(("ranks", "is_told"), [(1, False), (64, True)])
def test_failures_of_thousands_tell_nothing_of_a_few(ranks: int, *, is_told: bool) -> None:
    """Of one rank no failure is assumed every 2066 days: what is missing is said; figures that are given go on."""
    few = msgspec.structs.replace(RECORDED, ranks=ranks)
    text = " ".join(render(plan(GivenFigures(), few), width=80, colour=False).split())

    assert ("unknown: failure rate unknown; give --mttf 3h" in text) is not is_told
    assert ("Failure every" in text) is is_told
    assert "tiers" not in render(plan(GivenFigures(mttf_seconds=3600), few), width=80, colour=False)


def test_hostile_texts_are_inert() -> None:
    """Whatever a figure's text holds, nothing of it reaches the terminal raw."""
    evil = MeasuredFigures(
        job="\x1b[2J",
        saves=3,
        costs=3,
        other_jobs=0,
        cost=_seen(1.0, "\x1b]0;PWN\x07\n[/red]"),
        interval=_seen(9.0, "\u202ex\r"),
    )
    text = render(plan(GivenFigures(mttf_seconds=3600), evil), width=80, colour=False)

    assert not {"\x1b", "\x07", "\u202e", "\r"} & set(text)


def test_an_interval_that_is_good_already() -> None:
    """Nobody is told to change what would gain nothing."""
    made = plan(GivenFigures(gpus=64, mttf_seconds=3 * 3600, cost_seconds=30, interval_seconds=900))
    text = render(made, width=200, colour=False)

    assert "Today       every 15 min 00 s (given): 9.6 % lost; as good, no change needed" in text


def test_a_directory_in_which_nothing_fits() -> None:
    """It says so, instead of a time."""
    text = render(plan(GivenFigures(mttf_seconds=3600, size_bytes=2e12, free_bytes=1e12)), width=80, colour=False)

    assert "1.00 TB free: not enough for one checkpoint" in text
