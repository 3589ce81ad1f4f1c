"""Signals for restores from an object store, against everything else that comes from there: data sets above all.

The bytes show no difference. But a resuming run fetches once, at its start, as much as was saved.
"""

from __future__ import annotations

from ckptprof.detect.events.event import Event
from ckptprof.detect.events.past_events import PastEvent
from ckptprof.detect.events.signals.sends import HALF, moved_by_sockets, per_process
from ckptprof.detect.tolerances import BESIDE_NS, LITTLE_SHARE, NEARLY_ALL, is_of_one_state

_AHEAD_BYTES = 100 << 20  # s3fs of fsspec fetches 50 MiB ahead, and torch.load begins three times
_BEGINNINGS = 2  # a reader fetches at most this many times what there is


def answers(event: Event) -> str | None:
    """Return the number of answers, if each was large and followed a small request."""
    seen = [part.sending for part in event.parts if part.sending is not None and part.sending.is_counted]
    number, size = sum(one.parts for one in seen), sum(one.parts_bytes for one in seen)
    return f"{number} answers" if number > 1 and size >= HALF * event.bytes else None


def asked(event: Event) -> bool:
    """Return whether its processes sent more than requests at the same time: gradients, calls."""
    counted = sum(part.sending.returned_bytes for part in event.parts if part.sending is not None)
    looked = moved_by_sockets(event, event.start_ns, event.end_ns + BESIDE_NS).sent_bytes
    return max(looked, counted) >= LITTLE_SHARE * event.bytes


def to_files(event: Event) -> bool:
    """Return whether its processes wrote as much to files at the same time: a download, whoever reads it later."""
    until_ns = event.end_ns + BESIDE_NS
    recent = event.known.transfers.recent
    return sum(recent.written_bytes(one, event.start_ns, until_ns) for one in event.processes) >= HALF * event.bytes


def not_first(event: Event) -> bool:
    """Return whether its processes had received as much from there, or had saved: they were training by then."""
    own, past = event.remembered, event.known.past
    before = (one for one in event.series if one.processes & own.processes)
    return any(one.bytes >= HALF * own.bytes for one in before) or past.has_saved(own.processes)


def saved_before(event: Event) -> bool:
    """Return whether an earlier run of its program saved as much: together, or each rank fetched all of it."""
    own = event.remembered
    sizes = {own.bytes}
    each = per_process(event)
    if is_of_one_state(min(each), max(each)):
        sizes.add(max(each))
    known = event.known
    states = [state for state in known.past.states(own.programs) if _is_over(event, state)]
    held = (one.event for one in known.deferred.sent_before(own, known.past))
    waiting = (one for one in held if _is_over(event, one))
    alike = (own._replace(bytes=size).may_be(state) for state in (*states, *waiting) for size in sizes)
    return any(alike) or any(_has_state(event, state) for state in states)


def _has_state(event: Event, state: PastEvent) -> bool:
    """Return whether it is a state plus prefetched bytes, and the run that saved fetched no such data.

    A state is read here and there: its head, its end, its head again. With prefetch some of it is fetched twice.
    """
    own = event.remembered
    ahead_bytes = min(_AHEAD_BYTES, _BEGINNINGS * state.bytes)
    if own.shapes.isdisjoint(state.shapes) or not state.bytes <= own.bytes <= (state.bytes + ahead_bytes) / NEARLY_ALL:
        return False
    before = event.known.past.received_before(state, own.shapes)
    return not any(one.bytes >= HALF * own.bytes for one in before)


def _is_over(event: Event, state: PastEvent) -> bool:
    """Return whether the saving run had ended: else its own loaders, or concurrent jobs, are fetching."""
    world = event.world
    return not any(
        process in event.remembered.processes
        or (process in world.histories and world.ended.get(process, event.end_ns) >= event.end_ns)
        for process in state.processes
    )
