"""How long an event waits for more to be known of it."""

from __future__ import annotations

import pytest

from ckptprof.detect.events.decision_table import Hypothesis
from ckptprof.detect.events.lifecycle import deferred_until_ns, is_final


@pytest.mark.parametrize(
    ("alone", "ended_ns", "due_ns"),
    [
        (Hypothesis.SAVE, None, 60_000_000_000),
        (Hypothesis.SAVE, 10, 2_000_000_010),
        (Hypothesis.COPY, None, 3_600_000_000_000),
        (Hypothesis.COPY, 10, 2_000_000_010),
        (Hypothesis.NOTHING, 10, 3_600_000_000_000),
    ],
)
def test_waiting_ends_with_the_writers_unless_a_later_run_may_read_it(
    alone: Hypothesis, ended_ns: int | None, due_ns: int
) -> None:
    """A save waits a minute for the next of its series, what is nothing alone an hour."""
    assert deferred_until_ns(alone, 0, ended_ns) == due_ns


def test_a_durable_save_is_followed_as_long_as_its_clean_up_may_come() -> None:
    """Another is followed as long as the sampler asks whether it is durable."""
    assert not is_final(31_000_000_000, durable=True)
    assert is_final(33_000_000_000, durable=True)
    assert not is_final(33_000_000_000, durable=False)
    assert is_final(151_000_000_000, durable=False)
