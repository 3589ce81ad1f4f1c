"""The value of a signal for one event: the row of the decision table that it names, and its text."""

from __future__ import annotations

from typing import NamedTuple


class SignalMatch(NamedTuple):
    """The finding of a predicate, where it is more than yes and one text."""

    detail: str = ""  # replaces {} in the signal's text
    row: str = ""  # of the decision table; the signal's own name if empty
    strength: float = 1.0  # times the weights of the row


class Signal(NamedTuple):
    """A signal that is true for an event."""

    name: str  # shown to users
    row: str
    text: str  # shown to users; empty: only a condition of combinations, never evidence
    strength: float = 1.0
