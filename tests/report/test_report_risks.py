"""A checkpoint that may not restore correctly is in one line of the report, with itself, in JSON and on the page."""

from __future__ import annotations

from datetime import timezone

import msgspec
import pytest
from tests.report.conftest import checkpoint

from ckptprof.model import Evidence, Frailty, Kind, Report, Risk, Watched
from ckptprof.report import conditions, document, show, terminal
from ckptprof.report.conditions import parse
from ckptprof.report.html import content
from ckptprof.report.summary import without_copies

TEXT = "ranks 0 and 1 wrote step_000300.pt at the same time: each of its bytes is the one that was written last"
RISK = Evidence(name=Risk.SHARED_PATH.value, weight=0.0, text=TEXT)
LEFT = Evidence(name=Risk.NOT_REPLACED.value, weight=0.0, text="model.pt is still the copy of /base/model.pt")


def report(*risky: int, kind: Kind = Kind.SAVE) -> Report:
    """Return a report of three checkpoints, of which some are at risk."""
    every = [checkpoint(number, 60.0 * number) for number in (1, 2, 3)]
    told = [
        msgspec.structs.replace(one, kind=kind, evidence=(*one.evidence, RISK if kind is Kind.SAVE else LEFT))
        if one.id in risky else one for one in every
    ]  # fmt: skip
    watched = Watched(start_ns=every[0].start_ns, end_ns=every[-1].end_ns)
    return Report(host="node7", watched=watched, checkpoints=tuple(told))


@pytest.mark.parametrize(
    ("risky", "line"),
    [
        ((3,), f"save 3 may not restore correctly: {TEXT}"),
        ((1, 3), f"save 3 may not restore correctly (nor 1 before it): {TEXT}"),
    ],
)
def test_a_report_tells_it_in_one_line(risky: tuple[int, ...], line: str) -> None:
    """Which checkpoint it is, why, and how many more there are."""
    text = terminal.render(report(*risky), width=400, colour=False, zone=timezone.utc)

    assert f"Risks     {line}" in text.splitlines()


def test_what_was_not_seen_is_not_told() -> None:
    """Neither a line nor a condition holds without a risk."""
    (judged,) = conditions.evaluate(report(), parse(["risks>0"], conditions.NAMES))

    assert "Risk" not in terminal.render(report(), width=120, colour=False, zone=timezone.utc)
    assert judged.is_met is False


def test_a_gate_can_ask_for_it() -> None:
    """It names the checkpoint."""
    (judged,) = conditions.evaluate(report(2), parse(["risks>0"], conditions.NAMES))

    assert (judged.is_met, judged.explanation) == (True, "1 (id 2)")


@pytest.mark.parametrize("drawn", [show.brief, show.render])
def test_a_checkpoint_tells_its_risk_once(drawn: type(show.brief)) -> None:  # type: ignore[valid-type]
    """Beside its status, and not again among the evidence for what it is."""
    text = drawn(report(3).checkpoints[2], width=400, colour=False, zone=timezone.utc)

    assert text.count(TEXT) == 1
    assert f"may not restore correctly: {TEXT}" in text


def test_documents_have_it_by_kind() -> None:
    """As a list, which is empty where nothing was seen."""
    first, _, last = document.report_document(report(3))["checkpoints"]

    assert first["risks"] == []
    assert last["risks"] == [{"kind": "shared-path", "text": TEXT}]


def test_the_page_has_it_beside_the_answer_and_with_its_checkpoint() -> None:
    """It is seen without opening anything."""
    page = content.page_of(report(3), (), timezone.utc)

    assert ("Risks", f"save 3 may not restore correctly: {TEXT}") in page["answer"]
    assert [dict(told).get("May not restore correctly") for id_, *_, told in page["rows"] if id_ == 3] == [[TEXT]]


def test_a_copy_at_risk_is_not_left_out() -> None:
    """Of two copies one stands in for what training never wrote."""
    both = report(1, 2, kind=Kind.COPY)
    plain = msgspec.structs.replace(both.checkpoints[0], evidence=())
    found = without_copies(msgspec.structs.replace(both, checkpoints=(plain, *both.checkpoints[1:])))

    assert [one.id for one in found.checkpoints] == [2, 3]
    assert found.copies_left_out == 1


@pytest.mark.parametrize("drawn", [show.brief, show.render])
def test_what_a_crash_may_cost_is_no_risk_of_what_is_there(drawn: type(show.brief)) -> None:  # type: ignore[valid-type]
    """It is told once, with its save and on the page; the save restores."""
    frailty = Evidence(name=Frailty.OVERWRITTEN.value, weight=0.0, text="it was written over the only copy")
    told = report()
    save = msgspec.structs.replace(told.checkpoints[2], evidence=(*told.checkpoints[2].evidence, frailty))
    text = drawn(save, width=400, colour=False, zone=timezone.utc)
    page = content.page_of(msgspec.structs.replace(told, checkpoints=(save,)), (), timezone.utc)

    assert (text.count(frailty.text), save.risks) == (1, ())
    assert "After a crash" in text
    assert [dict(told).get("After a crash") for *_, told in page["rows"]] == [[frailty.text]]
