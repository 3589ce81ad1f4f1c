"""One truth of two sights: what the trace saw is exact, so that what polling saw of the same adds names, not bytes."""

from __future__ import annotations

import itertools

from ckptprof.detect.transfers.streams import Stream
from ckptprof.detect.transfers.traced_streams import NEAR_NS, TracedStreams

_INFERRED = ("directory", "opening")  # nobody saw the process at the file: it is credited by bytes and times


def unexplained(polled: list[Stream], book: TracedStreams) -> list[Stream]:
    """Return the streams that the trace does not explain; what the others know besides goes to the traced ones."""
    left = []
    for stream in polled:
        traced = _explaining(stream, book) if stream.trace is None else []
        if not traced:
            left.append(stream)
        if stream.is_mapping and traced:
            _take_mapping(traced, stream)
        for exact in traced:
            if exact.process == stream.process and exact.writes == stream.writes:
                _take_over(exact, stream, book)
    return left


def _explaining(polled: Stream, book: TracedStreams) -> list[Stream]:
    """Return the traced streams of its file and time: its own process's, or anybody's if it was only credited."""
    low_ns = polled.may_begin_ns
    high_ns = polled.may_end_ns
    found = []
    for exact in book.near(polled.file, low_ns, high_ns):
        if polled.is_mapping:
            wanted = exact.process == polled.process and faulted_bytes_of(exact) > 0
        else:
            wanted = exact.process == polled.process or (polled.seen_by in _INFERRED and exact.writes == polled.writes)
        if wanted:
            found.append(exact)
    return found


def faulted_bytes_of(exact: Stream) -> int:
    """Return the bytes that page faults brought into a traced stream; 0 of any other."""
    return exact.trace.totals.faulted_bytes if exact.trace is not None and exact.trace.sessions else 0


def mapped_openings(exact: Stream, book: TracedStreams) -> list[Stream]:
    """Return the streams of one mapped file and process, most faults first: openings share one mapping's pages."""
    found = [
        stream
        for stream in book.near(exact.file, exact.first_ns, exact.last_ns)
        if stream.process == exact.process
        and not stream.writes
        and faulted_bytes_of(stream)
        and _apart_ns(stream, exact) < NEAR_NS
    ]
    return sorted(found, key=faulted_bytes_of, reverse=True)


def _apart_ns(one: Stream, other: Stream) -> int:
    """Return the time between the faults of two mappings: who maps a file again later touches all of it again."""
    if one.trace is None or other.trace is None:
        return 0
    here, there = one.trace.totals, other.trace.totals
    return max(here.first_ns, there.first_ns) - min(here.last_ns, there.last_ns)


def faulted_before(exact: Stream, openings: list[Stream]) -> int:
    """Return the bytes that openings with more faults account for."""
    return sum(faulted_bytes_of(stream) for stream in itertools.takewhile(lambda stream: stream is not exact, openings))


def _take_mapping(traced: list[Stream], polled: Stream) -> None:
    """Keep how much of a mapping was touched: large folios come in without an event."""
    for exact in traced:
        if exact.mapping is None or exact.mapping.mapped_bytes < polled.mapped_bytes:
            exact.mapping = polled


def _take_over(exact: Stream, polled: Stream, book: TracedStreams) -> None:
    """Keep what only polling knows: the name if the trace has none, what the file system says, how it was opened."""
    if not exact.path.startswith("/"):
        exact.path = polled.path
        exact.earlier_path = polled.earlier_path
        if exact.trace is not None:
            exact.trace.version += 1
    exact.append = exact.append or polled.append
    if polled.fact is not None and polled.fact_at_ns >= exact.fact_at_ns:
        exact.fact, exact.fact_at_ns = polled.fact, polled.fact_at_ns
    if polled.closed_ns is not None:
        book.close(exact, polled.closed_ns)
