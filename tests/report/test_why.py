"""`replay --why`: every event is explained by its sums, its signals, and the rule that overrides them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from tests.report.schemas import validate

from ckptprof.model import CheckpointQuery
from ckptprof.report import why
from ckptprof.report.document import dump, report_document
from ckptprof.service.commands.replaying import replay

STREAMS = Path(__file__).resolve().parents[1] / "fixtures" / "streams"


def lines_of(name: str) -> str:
    """Return all that is explained of a capture."""
    replayed = replay(STREAMS / f"{name}.ckptrec.gz", None)
    return "\n".join(why.explanations(replayed.decisions, replayed.report.checkpoints))


def test_a_reported_save_is_explained() -> None:
    """Its sum, and each signal with its row's weight."""
    text = lines_of("torch-save")

    assert "save 3: 200 MB written by" in text
    assert "save    +2.10 of the 0.60 needed <- decided" in text
    assert "+0.35                           runtime-training: written by a process with torch loaded" in text


def test_a_rule_that_overrides_the_sum_is_named() -> None:
    """A copy, whatever its sum for a save is, and the read side that is reported by the written one."""
    text = lines_of("stage-in.trace")

    assert "rule 'copied' excludes save and restore" in text
    assert "copy    +1.00 of the 0.65 needed <- decided" in text
    assert "copy, reported by its written side: 210 MB read by" in text


def test_a_rule_that_leaves_a_save_unsure_is_named() -> None:
    """Its sum is large, and nothing but its rhythm made it so."""
    text = lines_of("unknown-activations")

    assert "save    +1.12 of the 0.60 needed <- decided" in text
    assert "rule 'only a rhythm' lowers the confidence" in text


def test_data_is_told_from_nothing() -> None:
    """What speaks for data decides that."""
    text = lines_of("data-set")

    assert "data    +1.20 of the 0.60 needed <- decided" in text
    assert "-1.00, copy -1.00, data +0.60   data: its name has a word" in text


def test_what_came_nearest_is_told_with_what_it_lacked() -> None:
    """By its sum, or by the rule that excludes it; nothing where nothing was judged."""
    data = why.closest_candidate(
        one for one in replay(STREAMS / "data-set.ckptrec.gz", None).decisions if one.is_rejected
    )
    copied = [one for one in replay(STREAMS / "stage-in.trace.ckptrec.gz", None).decisions if one.decision.override]

    assert data is not None
    assert data.startswith("the closest candidate was ")
    assert ", which is not counted as a save: not enough shows that it is one (" in data
    assert "; against it: numbered pieces that only continue counting, as data sets do" in data
    assert ": as much was read" in (why.closest_candidate(copied) or "")
    assert why.closest_candidate([]) is None


@pytest.mark.parametrize("name", ["torch-save", "stage-in.trace", "data-set"])
def test_the_document_says_the_same(name: str) -> None:
    """One entry for each event, and the weights of its signals add up to the sums."""
    replayed = replay(STREAMS / f"{name}.ckptrec.gz", None)

    found = json.loads(json.dumps(why.documents(replayed.decisions, replayed.report.checkpoints)))

    validate("report", {**json.loads(dump(report_document(replayed.report))), "events": found})
    assert {entry["checkpoint"] for entry in found} >= {one.id for one in replayed.report.checkpoints}
    for entry in found:
        for hypothesis, score in entry["scores"].items():
            total = sum(signal["weights"].get(hypothesis, 0.0) for signal in entry["signals"])
            assert score["sum"] == pytest.approx(total, abs=0.01)


@pytest.mark.parametrize("width", [40, 80])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """What does not fit is wrapped, and nothing of it is lost but what a single word is too long for."""
    replayed = replay(STREAMS / "torch-save.ckptrec.gz", None)
    whole = why.explanations(replayed.decisions, replayed.report.checkpoints)

    wrapped = why.explanations(replayed.decisions, replayed.report.checkpoints, width)

    assert max(map(len, whole)) > 80
    assert max(map(len, wrapped)) <= width
    words = [word for line in whole for word in line.split() if len(word) < 20]
    assert words == [
        word for line in wrapped for word in line.split() if len(word) < 20 and "\N{HORIZONTAL ELLIPSIS}" not in word
    ]


def test_a_question_chooses_events() -> None:
    """By job and time, as it chooses checkpoints."""
    replayed = replay(STREAMS / "torch-save.ckptrec.gz", None)
    first, last = replayed.decisions[0], replayed.decisions[-1]

    assert why.select(replayed.decisions, CheckpointQuery(job="nobody")) == []
    assert why.select(replayed.decisions, CheckpointQuery(job=last.job, since_ns=last.start_ns)) == [last]
    assert why.select(replayed.decisions, CheckpointQuery(until_ns=first.start_ns)) == [first]


def test_what_the_detector_forgot_is_counted() -> None:
    """It keeps the last events only; who asks why is told that some are missing."""
    replayed = replay(STREAMS / "torch-save.ckptrec.gz", None)

    assert replayed.forgotten_count == 0
    assert dataclasses.replace(replayed, decisions=replayed.decisions[2:]).forgotten_count == 2
