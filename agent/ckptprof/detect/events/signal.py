"""What a signal tells of one event: the row of the decision table that it names, and what was seen."""

from __future__ import annotations

from typing import NamedTuple


class Found(NamedTuple):
    """What a predicate found, where that is more than yes and one text."""

    detail: str = ""  # takes the place of {} in the signal's text
    row: str = ""  # of the decision table; the signal's own name if empty
    strength: float = 1.0  # times the weights of the row


class Signal(NamedTuple):
    """A signal that holds of an event."""

    name: str  # as users see it
    row: str
    text: str  # for a person; empty: a mere condition of combinations, and never shown as evidence
    strength: float = 1.0
