"""When is sent: not all nodes at once, not beside a save, ever later while the server is away."""

from __future__ import annotations

import random

import pytest

from ckptprof.service.shipping.shipper import (
    HEARTBEAT_SECONDS,
    MAX_DELAY_SECONDS,
    MAX_RETRY_SECONDS,
    SPREAD_SECONDS,
    ShippingPace,
)


def _pace(seed: int = 1) -> ShippingPace:
    return ShippingPace(0.0, random.Random(seed))  # noqa: S311 # no secret


def _due(pace: ShippingPace, now: float) -> float:
    """Return how long from now nothing is due, to a second."""
    return next(seconds for seconds in range(10_000) if pace.is_due(now + seconds))


def test_the_nodes_of_a_job_send_spread_over_two_minutes() -> None:
    """Each some time after what changed, and what changes meanwhile waits no longer."""
    waits = []
    for seed in range(200):
        pace = _pace(seed)
        pace.record_success(0.0)
        pace.record_change(10.0)
        first = _due(pace, 10.0)
        pace.record_change(11.0)
        assert _due(pace, 10.0) == first
        waits.append(first)

    assert max(waits) <= SPREAD_SECONDS + 1
    thirds = [sum(low <= wait < low + 40 for wait in waits) for low in (0, 40, 80)]
    assert min(thirds) > 40


def test_without_a_change_a_node_says_now_and_then_that_it_is_there() -> None:
    """Not all at the same time."""
    waits = {_due(_sent(seed), 0.0) for seed in range(50)}

    assert all(0.8 * HEARTBEAT_SECONDS <= wait <= 1.2 * HEARTBEAT_SECONDS + 1 for wait in waits)
    assert len(waits) > 10


def _sent(seed: int) -> ShippingPace:
    pace = _pace(seed)
    pace.record_success(0.0)
    return pace


def test_what_fails_is_tried_ever_later() -> None:
    """At most a quarter of an hour later; after a success as soon as at first."""
    pace = _pace()
    waits = []
    for _ in range(40):
        pace.record_failure(0.0)
        waits.append(_due(pace, 0.0))

    assert max(waits[:3]) <= 4
    assert MAX_RETRY_SECONDS / 2 < max(waits) <= MAX_RETRY_SECONDS + 1
    pace.record_success(0.0)
    pace.record_failure(0.0)
    assert _due(pace, 0.0) <= 2


def test_what_changes_while_the_server_is_away_is_not_tried_sooner() -> None:
    """After a sign of life that failed, too: neither before the server wants to be asked nor all nodes at once."""
    pace = _sent(1)
    pace.record_failure(0.0, 600.0)
    pace.record_change(1.0)

    assert _due(pace, 0.0) >= 600


@pytest.mark.parametrize("held", [0.0, 100.0, MAX_DELAY_SECONDS - 1])
def test_nothing_is_sent_beside_a_save(held: float) -> None:
    """Unless saves follow each other without a pause for an hour."""
    pace = _pace()
    assert not pace.may_send(1000.0, is_writing=True)

    assert not pace.may_send(1000.0 + held, is_writing=True)

    assert pace.may_send(1000.0 + MAX_DELAY_SECONDS, is_writing=True)
    assert pace.may_send(1001.0, is_writing=False)
    assert not pace.may_send(1000.0 + MAX_DELAY_SECONDS, is_writing=True)
