"""Decides by the table what an event is, as a pure function of its signals."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ckptprof.detect.events.decision_table import TABLE, Combination, DecisionTable, Hypothesis
from ckptprof.detect.events.signal_values import Signal
from ckptprof.model import Evidence

DOUBT = 0.5  # the confidence of a deferred or doubtful event


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision on an event, and its reasons."""

    hypothesis: Hypothesis  # of a deferred event: what it is if nothing more comes
    confidence: float  # 0.5 (just enough evidence) to 0.99; neither checkpoint nor copy: 0.5
    scores: dict[Hypothesis, float]  # of each hypothesis that its direction allows
    override: Combination | None = None  # excludes save and restore
    deferral: Combination | None = None  # defers it
    doubt: Combination | None = None  # leaves it unsure, whatever its sum
    marks_series_as_data: bool = False  # deferred earlier events of its series are data

    @property
    def save_or_restore(self) -> float:
        """The sum for a save or a restore."""
        return self.scores.get(Hypothesis.SAVE, self.scores.get(Hypothesis.RESTORE, 0.0))

    @property
    def is_copy_or_stream(self) -> bool:
        """Whether it is a copy or a stream of a checkpoint."""
        return self.hypothesis in (Hypothesis.COPY, Hypothesis.STREAM)

    @property
    def is_nothing(self) -> bool:
        """Whether it is neither a checkpoint nor a copy, and does not wait to become one."""
        return self.deferral is None and self.hypothesis in (Hypothesis.DATA, Hypothesis.NOTHING)


def decide(signals: tuple[Signal, ...], table: DecisionTable = TABLE) -> Decision:
    """Decide what an event with these signals is."""
    names = frozenset(name for signal in signals for name in (signal.name, signal.row))
    save_or_restore = Hypothesis.SAVE if "writes" in names else Hypothesis.RESTORE
    possible = (save_or_restore, Hypothesis.COPY, Hypothesis.STREAM, Hypothesis.DATA)
    rows = [(table.rows[signal.row], signal.strength) for signal in signals if signal.row in table.rows]
    scores = {one: math.fsum(row.weight(one) * strength for row, strength in rows) for one in possible}
    override = _first(table.overrides, names, scores[save_or_restore])
    if scores[Hypothesis.DATA] >= table.required_sums[Hypothesis.DATA]:
        names |= {"decided-data"}
    deferral = _first(table.deferrals, names, scores[save_or_restore]) if override is None else None
    decisive = override or deferral
    preferred = decisive.then if decisive is not None else save_or_restore
    likely = next(
        (one for one in (preferred, Hypothesis.DATA) if scores[one] >= table.required_sums[one]), Hypothesis.NOTHING
    )
    is_reported = likely not in (Hypothesis.DATA, Hypothesis.NOTHING)
    doubt = _first(table.doubts, names, scores[save_or_restore]) if likely is Hypothesis.SAVE else None
    is_sure = is_reported and deferral is None and doubt is None
    confidence_value = confidence_of_sum(scores[likely], table.required_sums[save_or_restore]) if is_sure else DOUBT
    marks_series_as_data = override is None and not names.isdisjoint(table.series_of_data)
    return Decision(likely, confidence_value, scores, override, deferral, doubt, marks_series_as_data)


def _first(combinations: tuple[Combination, ...], names: frozenset[str], save_or_restore: float) -> Combination | None:
    return next((one for one in combinations if one.applies(names, save_or_restore)), None)


def confidence_of_sum(total: float, needed: float) -> float:
    """Return the confidence of a sum, from 0.5 (just enough evidence) to 0.99."""
    return round(min(0.99, max(DOUBT, 0.5 + (total - needed) * 0.6)), 2)


def evidence_of(signals: tuple[Signal, ...]) -> tuple[Evidence, ...]:
    """Return the signals that users see, with their weights for a save or a restore; conditions have no text."""
    shown = (signal for signal in signals if signal.text)
    return tuple(
        Evidence(name=one.name, weight=TABLE.rows[one.row].save_or_restore * one.strength, text=one.text)
        for one in shown
    )
