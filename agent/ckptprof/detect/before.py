"""What the job did between the moment when training stood still and the first byte of a save."""

from __future__ import annotations

from ckptprof.detect.sight import Sight
from ckptprof.detect.streams import ProcessKey
from ckptprof.measures import BeforeMeasure

_LEAST_NS = 20_000_000
_GAP_NS = 500_000_000  # between the copy of the state and the first byte
_STEP_BYTES = 1 << 20  # growth from look to look that is no rustle


def before_of(sight: Sight) -> BeforeMeasure | None:
    """Return it; None if training was not seen standing still before."""
    first_ns = _first_byte_ns(sight)
    start_ns = first_ns
    for span in sorted(sight.hold.spans, reverse=True):
        if span[0] < start_ns and span[1] >= start_ns - _GAP_NS:
            start_ns = span[0]
    if not sight.candidate.writes or first_ns - start_ns < _LEAST_NS:
        return None
    main = _leading(sight)
    usage = sight.books.usage
    used = usage.used(main, start_ns, first_ns)
    grown = [
        one.grown_bytes
        for process in sight.candidate.processes
        if (one := usage.used(process, start_ns, first_ns)) is not None and one.grown_bytes is not None
    ]
    return BeforeMeasure(
        held_ns=first_ns - start_ns,
        busy=used.cores if used is not None else None,
        received_bytes=sight.books.links.received_bytes(start_ns, first_ns),
        grown_bytes=max(0, sum(grown)) if grown else None,
        growing_ns=usage.growing_ns(main, start_ns, first_ns, _STEP_BYTES),
    )


def _first_byte_ns(sight: Sight) -> int:
    """Return when the first operation began; polled: the start of the first file."""
    firsts = []
    for part in sight.candidate.parts:
        trace = (part.staged or part.stream).trace
        firsts.append(trace.totals.first_ns if trace is not None and trace.moved else part.start_ns)
    return min(firsts)


def _leading(sight: Sight) -> ProcessKey:
    """Return the process that wrote most."""
    moved: dict[ProcessKey, int] = {}
    for part in sight.candidate.parts:
        moved[part.stream.process] = moved.get(part.stream.process, 0) + part.bytes
    return max(moved, key=lambda process: moved[process])
