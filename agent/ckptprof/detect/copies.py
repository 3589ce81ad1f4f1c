"""Whether what a process wrote is what it read from other files at that time: exact, from the trace."""

from __future__ import annotations

from ckptprof.detect.candidates import Candidate
from ckptprof.detect.streams import Stream
from ckptprof.detect.tracebook import TraceBook
from ckptprof.detect.traced import copies_in_kernel
from ckptprof.model import Evidence

AHEAD_NS = 500_000_000  # what is written was read before
_LIKE = (0.8, 1.25)


def traced_copies(candidate: Candidate, book: TraceBook) -> Evidence | None:
    """Return what speaks for a copy: as much moved the other way between the same processes and other files."""
    own_files = {part.stream.file for part in candidate.parts}
    start_ns, end_ns = candidate.start_ns, candidate.end_ns
    if candidate.writes:
        start_ns -= AHEAD_NS
    else:
        end_ns += AHEAD_NS
    own = others = in_kernel = 0
    for process in candidate.processes:
        for stream in book.moved_by(process):
            moved = _within(stream, start_ns, end_ns)
            if stream.writes == candidate.writes:
                own += moved
                in_kernel += moved if stream.trace is not None and copies_in_kernel(stream.trace.totals.kinds) else 0
            elif stream.file not in own_files:
                others += moved
    if not own or not _LIKE[0] <= others / own <= _LIKE[1]:
        return None
    if in_kernel * 2 > own:
        return Evidence(
            name="copies", weight=-0.9, text="copied by the kernel from file to file, as much read as written"
        )
    return Evidence(name="copies", weight=-0.7, text="its process read as much as it wrote, at the same time")


def _within(stream: Stream, start_ns: int, end_ns: int) -> int:
    """Return how many of a stream's bytes were moved in the given time, at an even rate within each look."""
    if stream.trace is None:
        return 0
    moved = 0
    for low, high, size in stream.trace.points:
        inside = min(high, end_ns) - max(low, start_ns)
        if inside > 0:
            moved += size if inside >= high - low else size * inside // (high - low)
    return moved
