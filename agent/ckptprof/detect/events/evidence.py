"""The signals of an event as the evidence that users see, each with its weight for a save or a restore."""

from __future__ import annotations

from ckptprof.detect.events.decision_table import TABLE
from ckptprof.detect.events.signal import Signal
from ckptprof.model import Evidence


def evidence_of(signals: tuple[Signal, ...]) -> tuple[Evidence, ...]:
    """Return the evidence; conditions of combinations are none."""
    shown = (signal for signal in signals if signal.text)
    return tuple(
        Evidence(name=one.name, weight=TABLE.rows[one.row].made * one.strength, text=one.text) for one in shown
    )
