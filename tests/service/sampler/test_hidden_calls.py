"""Where a driver moves data past all calls, what processes that train have open is looked at while tracing, too."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest
from standintrace import Desk, StandIn


@pytest.mark.parametrize(
    ("hides", "trains", "counted"), [(False, True, True), (True, True, False), (True, False, True)]
)
def test_descriptors_are_looked_at_where_calls_are_not_all(
    monkeypatch: pytest.MonkeyPatch, *, hides: bool, trains: bool, counted: bool
) -> None:
    """Of who trains alone, and on no other host: there the calls that the trace counts are all."""
    desk = Desk(StandIn())
    sampler: Any = desk.sampler
    told: list[bool] = []
    watching = MagicMock(is_training=trains, places_known=True, new_files=[])
    watching.process.pid = 1
    watching.question_if_due.return_value = None
    watching.scan_if_due.side_effect = lambda *_, traced: told.append(traced)
    monkeypatch.setattr(sampler, "_bypasses_calls", hides)
    monkeypatch.setattr(sampler, "_burst_sampling", MagicMock(sample=lambda *_, **__: []))
    monkeypatch.setattr(sampler, "_population", MagicMock(watched={1: watching}))
    sampler._population.rounds.due.return_value = [watching]
    sampler._population.rounds.awake = {}
    sampler._sample_watched(1, 0, [])
    monkeypatch.undo()
    desk.close()

    assert told == [counted]
