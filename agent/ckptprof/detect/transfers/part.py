"""One transfer of a file as a part of an event: with its edges, its bytes, and what its name says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ckptprof.detect.transfers.streams import Stream
from ckptprof.frameworks.names import Name, read_name


@dataclass(slots=True)
class Part:
    """A stream with its edges, and what its name says. Times are CLOCK_MONOTONIC."""

    stream: Stream
    name: Name
    start_ns: int
    end_ns: int
    bytes: int
    temporary: bool = False  # traced, and its name is not the last one: a rename may follow
    staged: Stream | None = None  # the file elsewhere that it was written to first, to be copied from there
    carried: list[Stream] = field(default_factory=list)  # streams that it stands for: the stage, and its reading
    is_open: bool = False  # it is not over: only to be waited for


def name_of(stream: Stream) -> Name:
    """Return what the stream's final name says."""
    return read_name(stream.path)


def traced_bytes(parts: Iterable[Part]) -> int:
    """Return the bytes that were moved by traced streams."""
    return sum(part.bytes for part in parts if part.stream.trace is not None)


def is_mapped(part: Part) -> bool:
    """Return whether its bytes were moved by page faults."""
    trace = part.stream.trace
    return part.stream.is_mapping if trace is None else trace.totals.faulted_bytes > 0
