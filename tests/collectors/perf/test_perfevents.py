"""The records of a ring, as bytes: whole ones are taken, whatever else is there."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from ckptprof_collectors.perf.events import Event, parse, ring_bytes_for

EXIT = struct.pack("<IHHIIQI", 9, 0, 56, 10, 11, 13, 28) + bytes(8) + struct.pack("<qq", 1, -5) + bytes(4)
LOST = struct.pack("<IHHQQ", 2, 0, 24, 1, 77)
OTHER = struct.pack("<IHHIIQ", 9, 0, 24, 1, 2, 3)


def test_whole_records_are_taken() -> None:
    """In their order; of a record that is cut off nothing is taken, of a kind that is not known nothing is told."""
    enter = struct.pack("<IHHIIQI", 9, 0, 96, 10, 11, 12, 68) + bytes(8) + struct.pack("<q6Q", 1, 3, 4, 5, 6, 7, 8)
    enter += bytes(4)
    events: list[Event] = []
    taken, lost = parse(enter + LOST + OTHER + EXIT + enter[:50], events)

    assert len(enter) == 96
    assert (taken, lost) == (96 + 24 + 24 + 56, 77)
    assert events == [(10, 11, 12, 1, 3, 4, 5, 6, 7, 8), (10, 11, 13, 1, -5)]


@given(st.binary(max_size=300))
def test_no_bytes_whatever_are_too_much_for_it(data: bytes) -> None:
    """It ends, and takes no more than there is."""
    events: list[Event] = []
    taken, lost = parse(data, events)

    assert 0 <= taken <= len(data)
    assert lost >= 0
    assert all(len(event) in (5, 10) for event in events)


def test_rings_are_bounded_together() -> None:
    """A power of two each, and never too small to work."""
    assert ring_bytes_for(1 << 20, 2, 64 << 20) == 1 << 20
    assert ring_bytes_for(1 << 20, 192, 64 << 20) == 256 << 10
    assert ring_bytes_for(1 << 20, 10_000, 64 << 20) == 64 << 10
    assert ring_bytes_for(100_000, 2, 64 << 20) == 64 << 10
