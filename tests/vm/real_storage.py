"""Checkpoints on real NFS, NVMe and NVMe over TCP of another kernel, with planted faults: `make vm`.

Python is 20 times slower there: polled, a process without a library is sampled every few seconds, and most is missed.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from .conftest import LEVELS, Recorded

NEARBY_NS = 500_000_000


def test_each_save_and_restore_is_found(recorded: Recorded) -> None:
    """At trace, by its path, with its bytes and times; nothing else is."""
    found, truth = recorded.found["trace"], recorded.truth

    assert [(one["kind"], one["path"], one["bytes"]) for one in found] == [
        (event["kind"], event["path"], event["bytes"]) for event in truth
    ]
    for one, event in zip(found, truth, strict=True):
        assert abs(one["start_ns"] - event["start_ns"]) < NEARBY_NS, one["verdict"]["sentence"]
        assert abs(one["end_ns"] - event["end_ns"]) < NEARBY_NS, one["verdict"]["sentence"]


@pytest.mark.parametrize("level", LEVELS)
def test_nothing_is_found_twice(recorded: Recorded, level: str) -> None:
    """However late the counters of a process come."""
    spans = [(one["start_ns"], one["end_ns"]) for one in recorded.found[level]]

    assert all(before[1] <= after[0] for before, after in pairwise(spans))


def test_the_planted_fault_is_the_limit(recorded: Recorded) -> None:
    """Of the saves that it is in, and of no other; the network is not, where nothing was planted in it."""
    saves = [one["verdict"]["limit"] for one in recorded.found["trace"] if one["kind"] == "save"]
    hit = recorded.scenario.hit

    if recorded.scenario.fault:
        assert {limit for number, limit in enumerate(saves) if number in hit} == {recorded.scenario.limit}
        assert recorded.scenario.limit not in {limit for number, limit in enumerate(saves) if number not in hit}
    else:
        assert "network" not in saves
