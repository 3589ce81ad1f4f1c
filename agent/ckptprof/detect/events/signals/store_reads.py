"""Signals for restores from an object store, against everything else that comes from there: data sets above all.

The bytes show no difference. But a resuming run fetches once, at its start, as much as was saved.
"""

from __future__ import annotations

from ckptprof.detect.events.event_context import EventContext
from ckptprof.detect.events.event_history import HistoryEvent
from ckptprof.detect.events.signals.store_writes import HALF, bytes_by_process, transferred_by_sockets
from ckptprof.detect.tolerances import CONCURRENT_NS, LITTLE_SHARE, NEARLY_ALL, is_same_state_size

_PREFETCH_BYTES = 100 << 20  # s3fs of fsspec fetches 50 MiB ahead, and torch.load begins three times
_MAX_PREFETCHES = 2  # a reader fetches at most this many times what there is


def came_in_answers(event: EventContext) -> str | None:
    """Return the number of answers, if each was large and followed a small request."""
    sendings = [part.sending for part in event.parts if part.sending is not None and part.sending.is_counted]
    number, size = sum(one.parts for one in sendings), sum(one.parts_bytes for one in sendings)
    return f"{number} answers" if number > 1 and size >= HALF * event.bytes else None


def sent_too_much(event: EventContext) -> bool:
    """More bytes sent by its processes than requests, at the same time: gradients, calls."""
    counted = sum(part.sending.returned_bytes for part in event.parts if part.sending is not None)
    sent_by_sockets = transferred_by_sockets(event, event.start_ns, event.end_ns + CONCURRENT_NS).sent_bytes
    return max(sent_by_sockets, counted) >= LITTLE_SHARE * event.bytes


def wrote_files(event: EventContext) -> bool:
    """As many bytes written to files by its processes at the same time: a download, to be read later."""
    until_ns = event.end_ns + CONCURRENT_NS
    recent = event.known.transfers.recent
    return sum(recent.written_bytes(one, event.start_ns, until_ns) for one in event.processes) >= HALF * event.bytes


def received_before(event: EventContext) -> bool:
    """Earlier reception of as much from there, or earlier saves: its processes were training already."""
    own, history = event.history_event, event.known.history
    before = (one for one in event.series if one.processes & own.processes)
    return any(one.bytes >= HALF * own.bytes for one in before) or history.has_saved(own.processes)


def saved_before(event: EventContext) -> bool:
    """As many bytes saved by an earlier run of its program: in sum, or each rank fetched all of it."""
    own = event.history_event
    sizes = {own.bytes}
    by_process = bytes_by_process(event)
    if is_same_state_size(min(by_process), max(by_process)):
        sizes.add(max(by_process))
    known = event.known
    states = [state for state in known.history.states_of(own.programs) if _has_ended(event, state)]
    deferred = (one.event for one in known.deferred.sent_before(own, known.history))
    deferred_states = (one for one in deferred if _has_ended(event, one))
    matches = (
        own._replace(bytes=size).may_be_same_state(state) for state in (*states, *deferred_states) for size in sizes
    )
    return any(matches) or any(_contains_state(event, state) for state in states)


def _contains_state(event: EventContext, state: HistoryEvent) -> bool:
    """Return True if it may be a state plus prefetched bytes, and the run that saved fetched no such data.

    A state is read at several places: its head, its end, its head again. With prefetch some of it is fetched twice.
    """
    own = event.history_event
    prefetch_bytes = min(_PREFETCH_BYTES, _MAX_PREFETCHES * state.bytes)
    if (
        own.shapes.isdisjoint(state.shapes)
        or not state.bytes <= own.bytes <= (state.bytes + prefetch_bytes) / NEARLY_ALL
    ):
        return False
    before = event.known.history.received_before(state, own.shapes)
    return not any(one.bytes >= HALF * own.bytes for one in before)


def _has_ended(event: EventContext, state: HistoryEvent) -> bool:
    """Return True if the saving run had ended: else its own loaders, or concurrent jobs, are fetching."""
    world = event.world
    return not any(
        process in event.history_event.processes
        or (process in world.histories and world.ended.get(process, event.end_ns) >= event.end_ns)
        for process in state.processes
    )
