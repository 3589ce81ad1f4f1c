"""Why each event of a recording is what it is: the sums, the signals, and the combination that overrides them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import msgspec

from ckptprof import units
from ckptprof.bounds import one_of
from ckptprof.detect.events.decision_table import TABLE, Combination, Hypothesis
from ckptprof.detect.recognition import Judged
from ckptprof.model import Checkpoint, CheckpointQuery
from ckptprof.report.clean import clean
from ckptprof.report.clean import width as cells
from ckptprof.report.document import ReportDocument
from ckptprof.report.summary import is_of_job
from ckptprof.report.table import wrap

_DEEPER = "    "  # before the rest of a line that was wrapped


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """The sum of the weights for a hypothesis, and what it needs."""

    sum: float
    needed: float


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Signals that together decide more than their sum."""

    name: str
    reason: str


class Weighed(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of an event, and what it weighs for each hypothesis."""

    name: str
    row: str | None  # of the decision table; None for a mere condition of rules
    text: str | None
    weights: dict[str, float]


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """Why an event is what it is."""

    checkpoint: int | None  # the id of what was reported of it; None if nothing was
    path: str
    bytes: int
    direction: Annotated[str, one_of("written", "read")]
    job: str
    start_ns: int
    hypothesis: Hypothesis  # of what was made to wait: what it is if nothing more comes
    scores: dict[str, Score]  # of each hypothesis
    override: Rule | None  # the rule that excludes save and restore whatever their sum is
    deferral: Rule | None  # the rule that made it wait for what comes later
    then: str | None  # what came of the waiting
    doubt: Rule | None  # the rule that leaves a save unsure, however large its sum is
    signals: tuple[Weighed, ...]


class ExplainedReport(ReportDocument, frozen=True, kw_only=True):
    """Names come from the machine and may hold anything that is valid in JSON. What was not seen is null, never 0."""

    judged: tuple[Explained, ...]  # only with `replay --why`: every event that was judged, in the order in which it was


def headline(judged: Judged) -> str:
    """Return the line of an event that is no checkpoint."""
    reasons = "; ".join(f"{reason.weight:+.2f} {reason.text}" for reason in judged.evidence)
    return clean(f"no checkpoint ({judged.score:+.2f}): {_what(judged)}: {reasons or 'no evidence'}")


def nearest(rejected: Iterable[Judged]) -> str | None:
    """Return the event that came nearest to a checkpoint, and what it lacked; None where nothing was judged."""
    one = max(rejected, key=lambda judged: (judged.decision.override is None, judged.score, judged.bytes), default=None)
    if one is None:
        return None
    kind = Hypothesis.SAVE if one.writes else Hypothesis.RESTORE
    nearest_one = f"the closest candidate was {_what(one)}"
    if one.decision.override is not None:
        return clean(f"{nearest_one}: {one.decision.override.why}")
    for_it = ", ".join(reason.text for reason in one.evidence if reason.weight > 0) or "nothing"
    against = ", ".join(reason.text for reason in one.evidence if reason.weight < 0)
    nearest_one += (
        f": {one.score:+.2f} of the {TABLE.needed[kind]:.2f} needed for a {kind.value}. Evidence for it: {for_it}"
    )
    return clean(nearest_one + (f". Evidence against it: {against}" if against else ""))


def explanations(all_judged: Iterable[Judged], checkpoints: Iterable[Checkpoint], width: int = 10**6) -> list[str]:
    """Return the lines that explain every event that was judged, in the order in which they were.

    What is wider than `width` cells is wrapped, under a deeper indentation.
    """
    reported = {checkpoint.uid: checkpoint for checkpoint in checkpoints}
    lines = []
    for judged in all_judged:
        for line in map(clean, _explained(judged, _reported(judged, reported))):
            if cells(line) <= width:
                lines.append(line)
                continue
            indent = line[: len(line) - len(line.lstrip(" "))]
            first, *more = wrap(" ".join(line.split()), width - len(indent) - len(_DEEPER))
            lines += [indent + first, *(indent + _DEEPER + part for part in more)]
    return lines


def chosen(all_judged: Iterable[Judged], query: CheckpointQuery) -> list[Judged]:
    """Return those that began in the time, and are of the job, that a question is about."""
    return [
        judged
        for judged in all_judged
        if is_of_job(judged.job, query.job)
        and (query.since_ns is None or judged.start_ns >= query.since_ns)
        and (query.until_ns is None or judged.start_ns <= query.until_ns)
    ]


def documents(all_judged: Iterable[Judged], checkpoints: Iterable[Checkpoint]) -> list[dict[str, Any]]:
    """Return what `explanations` says, for JSON."""
    reported = {checkpoint.uid: checkpoint for checkpoint in checkpoints}
    return [msgspec.to_builtins(_document(judged, _reported(judged, reported))) for judged in all_judged]


def _reported(judged: Judged, reported: dict[str, Checkpoint]) -> Checkpoint | None:
    return next((reported[uid] for uid in judged.uids if uid in reported), None)


def _what(judged: Judged) -> str:
    verb = "written" if judged.writes else "read"
    return f"{units.size(judged.bytes)} {verb} by {judged.job}, {judged.path}"


def _explained(judged: Judged, reported: Checkpoint | None) -> Iterator[str]:
    decision = judged.decision
    yield f"{_name(judged, reported)}: {_what(judged)}"
    # the hypotheses in question: a copy or a stream only where a rule says that it was moved
    shown = {rule.then for rule in (decision.override, decision.deferral) if rule is not None}
    shown |= {Hypothesis.SAVE, Hypothesis.RESTORE, decision.hypothesis}
    shown |= {Hypothesis.DATA} if decision.scores[Hypothesis.DATA] else set()
    for hypothesis, total in decision.scores.items():
        if hypothesis in shown:
            mark = " <- decided" if hypothesis is decision.hypothesis else ""
            yield f"  {hypothesis.value:<8}{total:+.2f} of the {TABLE.needed[hypothesis]:.2f} needed{mark}"
    if decision.hypothesis is Hypothesis.NOTHING:
        yield "  no hypothesis reaches the sum that it needs <- decided"
    if decision.override is not None:
        yield f"  rule '{decision.override.name}' excludes save and restore: {decision.override.why}"
    if decision.deferral is not None:
        yield f"  rule '{decision.deferral.name}' deferred the decision: {decision.deferral.why}"
        yield f"  then: {_later(judged, reported)}"
    if decision.doubt is not None:
        yield f"  rule '{decision.doubt.name}' lowers the confidence: {decision.doubt.why}"
    for signal in judged.signals:
        if signal.text:
            yield f"  {_weights(signal.row, signal.strength):<31} {signal.row}: {signal.text}"
    yield "  conditions: " + (", ".join(signal.name for signal in judged.signals if not signal.text) or "none")


def _name(judged: Judged, reported: Checkpoint | None) -> str:
    if reported is not None:
        return f"{reported.kind.value} {reported.id}"
    if judged.decision.is_copy_or_stream and judged.decision.override is not None:
        return f"{judged.decision.hypothesis.value}, reported by its written side"
    return f"no checkpoint ({judged.score:+.2f})"


def _later(judged: Judged, reported: Checkpoint | None) -> str:
    if reported is None:
        return "nothing that followed made it a save"
    new = [one.text for one in reported.evidence if one.weight > 0 and one not in judged.evidence]
    return new[-1] if new else f"nothing followed; on its own it is a {reported.kind.value}"


def _weights(row: str, strength: float) -> str:
    found = TABLE.rows[row]
    others = (("copy", found.copy_or_stream), ("data", found.data))
    shown = [
        f"{found.save_or_restore * strength:+.2f}",
        *(f"{name} {one * strength:+.2f}" for name, one in others if one),
    ]
    return ", ".join(shown)


def _document(judged: Judged, reported: Checkpoint | None) -> Explained:
    decision, weighed = judged.decision, []
    for signal in judged.signals:
        row = TABLE.rows.get(signal.row)
        weights = {} if row is None else {one.value: row.weight(one) * signal.strength for one in decision.scores}
        weighed.append(
            Weighed(
                name=signal.name,
                row=None if row is None else signal.row,
                text=signal.text or None,
                weights={one: round(weight, 3) for one, weight in weights.items()},
            )
        )
    return Explained(
        checkpoint=reported.id if reported is not None else None,
        path=judged.path,
        bytes=judged.bytes,
        direction="written" if judged.writes else "read",
        job=judged.job,
        start_ns=judged.start_ns,
        hypothesis=decision.hypothesis,
        scores={
            one.value: Score(sum=round(total, 3), needed=TABLE.needed[one]) for one, total in decision.scores.items()
        },
        override=_rule(decision.override),
        deferral=_rule(decision.deferral),
        then=_later(judged, reported) if decision.deferral is not None else None,
        doubt=_rule(decision.doubt),
        signals=tuple(weighed),
    )


def _rule(rule: Combination | None) -> Rule | None:
    return Rule(name=rule.name, reason=rule.why) if rule is not None else None
