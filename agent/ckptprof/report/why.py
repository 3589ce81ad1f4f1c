"""The reasons of each decision in a recording: sums, signals, and the rules that override them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import msgspec

from ckptprof import units
from ckptprof.bounds import one_of
from ckptprof.detect.events.decision_table import TABLE, Combination, Hypothesis
from ckptprof.detect.recognition import EventDecision
from ckptprof.model import Checkpoint, CheckpointQuery
from ckptprof.report.clean import clean
from ckptprof.report.clean import width as cells
from ckptprof.report.document import ReportDocument
from ckptprof.report.summary import matches_job
from ckptprof.report.table import wrap

_DEEPER = "    "  # before the rest of a line that was wrapped


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """The sum of the weights for a hypothesis, and its threshold."""

    sum: float
    needed: float


class NamedReason(msgspec.Struct, frozen=True, kw_only=True):
    """A combination of signals that decides more than their sum."""

    name: str
    reason: str


class WeighedSignal(msgspec.Struct, frozen=True, kw_only=True):
    """A signal of an event, and its weight for each hypothesis."""

    name: str
    row: str | None  # of the decision table; None for a mere condition of rules
    text: str | None
    weights: dict[str, float]


class EventExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """The reasons for the decision on an event."""

    checkpoint: int | None  # the id of the reported checkpoint; None if nothing was reported
    path: str
    bytes: int
    direction: Annotated[str, one_of("written", "read")]
    job: str
    start_ns: int
    hypothesis: Hypothesis  # for a deferred decision: the result if nothing follows
    scores: dict[str, Score]  # of each hypothesis
    override: NamedReason | None  # the rule that excludes save and restore whatever their sum is
    deferral: NamedReason | None  # the rule that deferred the decision until later events
    then: str | None  # the result of the deferral
    doubt: NamedReason | None  # the rule that leaves a save unsure, however large its sum is
    signals: tuple[WeighedSignal, ...]


class ExplainedReport(ReportDocument, frozen=True, kw_only=True):
    """Names come from the machine and may contain anything that is valid in JSON. Not observed: null, never 0."""

    events: tuple[EventExplanation, ...]  # only with `replay --why`: every event that was decided, in order


def headline(event: EventDecision) -> str:
    """Return the line of an event that is not a checkpoint."""
    reasons = "; ".join(f"{reason.weight:+.2f} {reason.text}" for reason in event.evidence)
    return clean(f"no checkpoint ({event.score:+.2f}): {_event_text(event)}: {reasons or 'no evidence'}")


def closest_candidate(rejected: Iterable[EventDecision]) -> str | None:
    """Describe the event that came closest to a checkpoint, and what it lacked; None without events."""
    one = max(rejected, key=lambda event: (event.decision.override is None, event.score, event.bytes), default=None)
    if one is None:
        return None
    kind = Hypothesis.SAVE if one.writes else Hypothesis.RESTORE
    nearest_one = f"the closest candidate was {_event_text(one)}"
    if one.decision.override is not None:
        return clean(f"{nearest_one}: {one.decision.override.why}")
    for_it = ", ".join(reason.text for reason in one.evidence if reason.weight > 0)
    against = ", ".join(reason.text for reason in one.evidence if reason.weight < 0)
    nearest_one += f", which is not counted as a {kind.value}: "
    nearest_one += f"not enough shows that it is one ({for_it})" if for_it else "nothing shows that it is one"
    return clean(nearest_one + (f"; against it: {against}" if against else ""))


def explanations(events: Iterable[EventDecision], checkpoints: Iterable[Checkpoint], width: int = 10**6) -> list[str]:
    """Return the lines that explain every decision, in order.

    Lines wider than `width` cells are wrapped with deeper indentation.
    """
    reported = {checkpoint.uid: checkpoint for checkpoint in checkpoints}
    lines = []
    for event in events:
        for line in map(clean, _explained(event, _reported(event, reported))):
            if cells(line) <= width:
                lines.append(line)
                continue
            indent = line[: len(line) - len(line.lstrip(" "))]
            first, *more = wrap(" ".join(line.split()), width - len(indent) - len(_DEEPER))
            lines += [indent + first, *(indent + _DEEPER + part for part in more)]
    return lines


def select(events: Iterable[EventDecision], query: CheckpointQuery) -> list[EventDecision]:
    """Select the events in the time range and of the job of a query."""
    return [
        event
        for event in events
        if matches_job(event.job, query.job)
        and (query.since_ns is None or event.start_ns >= query.since_ns)
        and (query.until_ns is None or event.start_ns <= query.until_ns)
    ]


def documents(events: Iterable[EventDecision], checkpoints: Iterable[Checkpoint]) -> list[dict[str, Any]]:
    """Return the same as `explanations`, for JSON."""
    reported = {checkpoint.uid: checkpoint for checkpoint in checkpoints}
    return [msgspec.to_builtins(_document(event, _reported(event, reported))) for event in events]


def _reported(event: EventDecision, reported: dict[str, Checkpoint]) -> Checkpoint | None:
    return next((reported[uid] for uid in event.uids if uid in reported), None)


def _event_text(event: EventDecision) -> str:
    verb = "written" if event.writes else "read"
    return f"{units.size(event.bytes)} {verb} by {event.job}, {event.path}"


def _explained(event: EventDecision, reported: Checkpoint | None) -> Iterator[str]:
    decision = event.decision
    yield f"{_name(event, reported)}: {_event_text(event)}"
    # the relevant hypotheses: a copy or a stream only if a rule names it
    shown = {rule.then for rule in (decision.override, decision.deferral) if rule is not None}
    shown |= {Hypothesis.SAVE, Hypothesis.RESTORE, decision.hypothesis}
    shown |= {Hypothesis.DATA} if decision.scores[Hypothesis.DATA] else set()
    for hypothesis, total in decision.scores.items():
        if hypothesis in shown:
            mark = " <- decided" if hypothesis is decision.hypothesis else ""
            yield f"  {hypothesis.value:<8}{total:+.2f} of the {TABLE.required_sums[hypothesis]:.2f} needed{mark}"
    if decision.hypothesis is Hypothesis.NOTHING:
        yield "  no hypothesis reaches the sum that it needs <- decided"
    if decision.override is not None:
        yield f"  rule '{decision.override.name}' excludes save and restore: {decision.override.why}"
    if decision.deferral is not None:
        yield f"  rule '{decision.deferral.name}' deferred the decision: {decision.deferral.why}"
        yield f"  then: {_after_deferral(event, reported)}"
    if decision.doubt is not None:
        yield f"  rule '{decision.doubt.name}' lowers the confidence: {decision.doubt.why}"
    for signal in event.signals:
        if signal.text:
            yield f"  {_weights(signal.row, signal.strength):<31} {signal.row}: {signal.text}"
    yield "  conditions: " + (", ".join(signal.name for signal in event.signals if not signal.text) or "none")


def _name(event: EventDecision, reported: Checkpoint | None) -> str:
    if reported is not None:
        return f"{reported.kind.value} {reported.id}"
    if event.decision.is_copy_or_stream and event.decision.override is not None:
        return f"{event.decision.hypothesis.value}, reported by its written side"
    return f"no checkpoint ({event.score:+.2f})"


def _after_deferral(event: EventDecision, reported: Checkpoint | None) -> str:
    if reported is None:
        return "nothing that followed made it a save"
    new = [one.text for one in reported.evidence if one.weight > 0 and one not in event.evidence]
    return new[-1] if new else f"nothing followed; on its own it is a {reported.kind.value}"


def _weights(row: str, strength: float) -> str:
    found = TABLE.rows[row]
    others = (("copy", found.copy_or_stream), ("data", found.data))
    shown = [
        f"{found.save_or_restore * strength:+.2f}",
        *(f"{name} {one * strength:+.2f}" for name, one in others if one),
    ]
    return ", ".join(shown)


def _document(event: EventDecision, reported: Checkpoint | None) -> EventExplanation:
    decision, weighed = event.decision, []
    for signal in event.signals:
        row = TABLE.rows.get(signal.row)
        weights = {} if row is None else {one.value: row.weight(one) * signal.strength for one in decision.scores}
        weighed.append(
            WeighedSignal(
                name=signal.name,
                row=None if row is None else signal.row,
                text=signal.text or None,
                weights={one: round(weight, 3) for one, weight in weights.items()},
            )
        )
    return EventExplanation(
        checkpoint=reported.id if reported is not None else None,
        path=event.path,
        bytes=event.bytes,
        direction="written" if event.writes else "read",
        job=event.job,
        start_ns=event.start_ns,
        hypothesis=decision.hypothesis,
        scores={
            one.value: Score(sum=round(total, 3), needed=TABLE.required_sums[one])
            for one, total in decision.scores.items()
        },
        override=_rule(decision.override),
        deferral=_rule(decision.deferral),
        then=_after_deferral(event, reported) if decision.deferral is not None else None,
        doubt=_rule(decision.doubt),
        signals=tuple(weighed),
    )


def _rule(rule: Combination | None) -> NamedReason | None:
    return NamedReason(name=rule.name, reason=rule.why) if rule is not None else None
