"""A trace for Perfetto: what overlaps, what is bounded, and how numbers are written."""

from __future__ import annotations

from ckptprof.export.files import protobuf
from ckptprof.export.files.perfetto import PerfettoTrace, Rate, Slice


def test_numbers_are_those_of_the_wire_format() -> None:
    """The examples of protobuf.dev, and a negative number of 64 bits."""
    assert protobuf.whole(1, 150) == bytes.fromhex("089601")
    assert protobuf.text(2, "testing") == bytes.fromhex("120774657374696e67")
    assert protobuf.varint(-1) == b"\xff" * 9 + b"\x01"
    assert protobuf.double(1, 1.0) == bytes.fromhex("09000000000000f03f")
    assert protobuf.fixed64(47, 1) == bytes.fromhex("f902" + "01" + "00" * 7)


def test_what_overlaps_goes_to_another_track() -> None:
    """Of the same name; what comes after takes the first that is free."""
    trace = PerfettoTrace()
    slices = [Slice("a", 0, 10), Slice("b", 5, 15), Slice("c", 10, 20)]
    packets = list(trace._lanes(1, 1, "at risk", slices))

    assert sum(b"at risk" in packet for packet in packets) == 2
    assert trace.events == 6


def test_a_trace_is_bounded_by_whole_slices() -> None:
    """What is left out is counted, and nothing is left open."""
    trace = PerfettoTrace(most=5)
    list(trace._lanes(1, 1, "x", [Slice("a", n, n + 1, inside=(Slice("b", n, n + 1),)) for n in range(3)]))

    assert (trace.events, trace.left_out) == (4, 2)


def test_a_rate_ends_in_nothing_where_nobody_watched() -> None:
    """Between two stretches it is zero, and after the last."""
    trace = PerfettoTrace()
    list(trace._counted(7, Rate("disk:vda written", [(0, 10, 5.0), (10, 20, 6.0), (30, 40, 7.0)])))

    assert trace.events == 5
