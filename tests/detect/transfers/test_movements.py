"""Where a session was between two samples of it, and what two such stretches are together."""

from __future__ import annotations

from typing import Any

import pytest
from tests.detect.tracer import MIB, activity, mono

from ckptprof.detect.transfers.model.movement import Movement, measure_movement, merge_movements
from ckptprof.model import Succession
from ckptprof_collectors.samples import FileActivity, OperationKind

NEXT, ON, BACK = Succession.NEXT, Succession.ON, Succession.BACK


def begun(moved: int, **fields: Any) -> FileActivity:
    """Return the first sample of a session."""
    return activity(moved=moved * MIB, closed=False, **fields)


def later(earlier: FileActivity, moved: int, **fields: Any) -> FileActivity:
    """Return a later sample of a session, that went on in order unless `fields` say otherwise."""
    whole = activity(end_s=3.0, moved=earlier.bytes + moved * MIB, closed=False)
    values = {name: getattr(whole, name) for name in whole.__struct_fields__}
    return FileActivity(**{**values, "session": earlier.session, **fields})


@pytest.mark.parametrize(
    ("sample", "low", "high", "order"),
    [
        (begun(10), 0, 10, NEXT),
        (begun(10, offset=5 * MIB), 5, 15, NEXT),
        (begun(10, high_offset=40 * MIB, end_offset=40 * MIB), 0, 40, ON),
        (begun(10, sequential_bytes=5 * MIB, sequential_operations=5, high_offset=40 * MIB), 0, 40, BACK),
        (begun(100, end_offset=30, sequential_operations=99, sequential_bytes=99 * MIB), 0, 100, NEXT),  # its header
        # the directory at the end of the file first
        (begun(10, first_offset=9 * MIB, sequential_operations=9, sequential_bytes=9 * MIB), 0, 10, NEXT),
        # a piece of 10 in a file of 40, after its end
        (begun(10, first_offset=39 * MIB, sequential_operations=9, sequential_bytes=9 * MIB, high_offset=40 * MIB,
               end_offset=9 * MIB), 0, 40, BACK),
        # twice over the same
        (begun(20, sequential_operations=19, sequential_bytes=19 * MIB, high_offset=10 * MIB, end_offset=10 * MIB),
         0, 10, BACK),
    ],
)  # fmt: skip
def test_the_first_stretch_of_a_session(sample: FileActivity, low: int, high: int, order: Succession) -> None:
    """From the first offset to the last; the order is that of nearly all bytes."""
    found = measure_movement(None, sample, sample.first_ns)

    assert found == Movement(sample.first_ns, sample.last_ns, sample.bytes, low * MIB, high * MIB, order, sample.tid)


@pytest.mark.parametrize(
    ("fields", "low", "high", "order"),
    [
        ({}, 10, 30, NEXT),
        ({"end_offset": 90 * MIB, "high_offset": 90 * MIB}, 10, 90, ON),
        # a header between two parts
        ({"sequential_operations": 29, "sequential_bytes": 30 * MIB - 30, "end_offset": 30}, 10, 30, NEXT),
        ({"sequential_operations": 20, "sequential_bytes": 20 * MIB, "end_offset": 8 * MIB}, 0, 30, BACK),
        # all over what was there, after one step back
        ({"sequential_operations": 29, "sequential_bytes": 30 * MIB - 30, "high_offset": 20 * MIB}, 0, 20, BACK),
    ],
)
def test_the_next_stretch_begins_where_the_one_before_ended(
    fields: dict[str, int], low: int, high: int, order: Succession
) -> None:
    """Of one with steps back only the bounds of all the session's offsets are known."""
    first = begun(10)
    found = measure_movement(first, later(first, 20, **fields), mono(2.5))

    assert found == Movement(mono(2.5), mono(3.0), 20 * MIB, low * MIB, high * MIB, order, first.tid)


def test_pages_of_a_mapping_that_nobody_told_have_no_place() -> None:
    """They are counted when it ends, as one operation larger than a fault: how far they went was not told."""
    kinds = int(OperationKind.FAULT | OperationKind.UNMAPPED)
    sample = begun(10, kinds=kinds, sizes=((8 * MIB, 1, 10 * MIB),), operations=1)
    found = measure_movement(None, sample, sample.first_ns)

    assert (found.bytes, found.low_offset, found.high_offset, found.order) == (10 * MIB, None, None, None)


def moved(start: int, low: int, high: int, order: Succession | None = NEXT, tid: int | None = 1) -> Movement:
    """Return a movement of one unit of time."""
    return Movement(start, start + 1, high - low, low, high, order, tid)


@pytest.mark.parametrize(
    ("one", "other", "order", "tid"),
    [
        (moved(0, 0, 10), moved(1, 10, 20), NEXT, 1),
        (moved(1, 10, 20), moved(0, 0, 10), NEXT, 1),
        (moved(0, 0, 10), moved(5, 20, 30), ON, 1),
        (moved(0, 10, 20), moved(1, 0, 10), BACK, 1),
        (moved(0, 0, 10), moved(1, 10, 20, BACK), BACK, 1),
        (moved(0, 0, 10), moved(1, 10, 20, tid=2), None, None),
        (moved(0, 0, 10, None, None), moved(1, 10, 20, None, None), None, None),
    ],
)
def test_two_stretches_are_one(one: Movement, other: Movement, order: Succession | None, tid: int | None) -> None:
    """From the first begin to the last end; in which order several threads did it was not seen."""
    both = merge_movements(one, other)
    low, high = min(one.low_offset or 0, other.low_offset or 0), max(one.high_offset or 0, other.high_offset or 0)
    edges = min(one.start_ns, other.start_ns), max(one.end_ns, other.end_ns)

    assert both == Movement(*edges, one.bytes + other.bytes, low, high, order, tid)


def test_what_has_no_place_takes_it_from_both() -> None:
    """The bytes stay."""
    both = merge_movements(moved(0, 0, 10), Movement(1, 2, 5))

    assert (both.bytes, both.low_offset, both.order) == (15, None, None)
