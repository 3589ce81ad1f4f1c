"""Signals for saves sent to an object store, against everything else that a process sends.

They use the process's other activity, and earlier saves and restores of its program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from ckptprof import units
from ckptprof.detect.events.event_context import EventContext
from ckptprof.detect.tolerances import ALL_SHARE, COMMIT_NS, CONCURRENT_NS, LITTLE_SHARE, NEARLY_ALL, is_same_state_size
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.frameworks.places import OBJECT_STORE_PORTS

HALF = 0.5
_MIN_PART_BYTES = 5 << 20  # S3 rejects smaller parts, except the last (EntityTooSmall)


class SocketBytes(NamedTuple):
    """The bytes that the sockets of some processes counted."""

    sent_bytes: float = 0.0
    received_bytes: float = 0.0


def endpoint_text(event: EventContext) -> str:
    """Return its destination, or its source."""
    endpoints = dict.fromkeys(one for part in event.parts if part.sending for one in part.sending.endpoints)
    more = f" and {len(endpoints) - 1} more" if len(endpoints) > 1 else ""
    address, port = next(iter(endpoints))
    return f"port {port} of {address}{more}"


def part_text(event: EventContext) -> str | None:
    """Return the number and mean size of its parts, if each was answered and as large as a store's minimum."""
    sendings = [part.sending for part in event.parts if part.sending is not None and part.sending.is_counted]
    number, size = sum(one.parts for one in sendings), sum(one.parts_bytes for one in sendings)
    is_upload = number > 1 and size >= NEARLY_ALL * event.bytes and size >= _MIN_PART_BYTES * (number - 1)
    return f"{number} parts of {units.size(size / number)}" if is_upload else None


def is_answered_at_length(event: EventContext) -> bool:
    """More bytes received by its processes than answers to uploads.

    During it, over any connection: gradients, calls of services, a data set. Since the previous one of its series, from
    such ports: federated rounds send a state and fetch the next.
    """
    until_ns = max(part.last_data_ns(event.world.clock) for part in event.parts) + CONCURRENT_NS
    counted = sum(part.sending.returned_bytes for part in event.parts if part.sending is not None)
    if max(_received_bytes(event, event.start_ns, until_ns), counted) >= LITTLE_SHARE * event.bytes:
        return True
    if not event.series:
        return False
    ports = OBJECT_STORE_PORTS.union(port for part in event.parts if part.sending for _, port in part.sending.endpoints)
    return _received_bytes(event, event.series[-1].end_ns, event.start_ns, ports) >= HALF * event.bytes


def _received_bytes(event: EventContext, start_ns: int, end_ns: int, ports: Collection[int] | None = None) -> float:
    """Return what its processes received, by their sockets or, where these are not observed, their calls."""
    by_sockets = transferred_by_sockets(event, start_ns, end_ns, ports).received_bytes
    sent = event.known.transfers.sent
    return max(
        by_sockets, sum(sent.counted_bytes(one, start_ns, end_ns, ports, sends=False) for one in event.processes)
    )


def sent_bytes_to_stores(event: EventContext, start_ns: int, end_ns: int) -> float:
    """Return what its processes sent to ports of object stores, at most: by samples of sockets, or their calls."""
    connections = event.world.devices.connections
    by_sockets = connections.sent_bytes_around(start_ns, end_ns, event.processes, OBJECT_STORE_PORTS)
    sent = event.known.transfers.sent
    counted = (sent.counted_bytes(one, start_ns, end_ns, OBJECT_STORE_PORTS, sends=True) for one in event.processes)
    return max(by_sockets, sum(counted))


def transferred_by_sockets(
    event: EventContext, start_ns: int, end_ns: int, ports: Collection[int] | None = None
) -> SocketBytes:
    """Return what its processes sent and received over all connections, or those to some ports, by samples."""
    own = [
        traffic
        for endpoint, traffic in event.world.devices.connections.traffic_between(start_ns, end_ns, event.processes)
        if ports is None or endpoint.port in ports
    ]
    return SocketBytes(sum(one.sent_bytes for one in own), sum(one.received_bytes for one in own))


def bytes_by_process(event: EventContext) -> list[int]:
    """Return the bytes of each of its processes."""
    by_process: Counter[ProcessKey] = Counter()
    for part in event.parts:
        by_process[part.process] += part.bytes
    return list(by_process.values())


def was_fetched(event: EventContext) -> bool:
    """As many bytes fetched from there by its job at its start, and not again since."""
    deferred = event.known.deferred.fetched_by(event.job, event.history_event, event.known.history)
    return any(is_same_state_size(one.event.bytes, event.bytes, ALL_SHARE) for one in deferred)


def is_as_large_as_state(event: EventContext) -> bool:
    """As many bytes saved by its program in another way: to files, or in an earlier run."""
    own = event.history_event
    return any(
        is_same_state_size(state.bytes, own.bytes, ALL_SHARE) and own.may_be_same_state(state)
        for state in event.known.history.states_of(own.programs)
        if not (state.processes & own.processes and state.shapes & own.shapes)
    )


def is_read_from_files(event: EventContext) -> bool:
    """As many bytes read from files by its processes at the same time: an upload of files."""
    span = event.start_ns - CONCURRENT_NS, event.end_ns
    read = sum(event.world.histories[process].returned_bytes(*span) for process in event.processes)
    return max(read, _touched_bytes(event, *span)) >= HALF * event.bytes


def _touched_bytes(event: EventContext, start_ns: int, end_ns: int) -> int:
    """Return the growth of file-backed memory of processes with mappings; files touched before do not show."""
    recent = event.known.transfers.recent
    mapping = (
        process
        for process in event.processes
        if any(one.is_mapped for one in recent.transfers_between(process, start_ns, end_ns, writes=False))
    )
    return sum(event.world.usage.file_memory_growth(process, start_ns, end_ns) for process in mapping)


def is_also_written_to_files(event: EventContext) -> bool:
    """As many bytes written to files by its processes just before or at the same time: those are the save."""
    recent = event.known.transfers.recent
    window = event.start_ns - COMMIT_NS, event.end_ns
    grown = sum(recent.written_bytes(one, *window) for one in event.processes)
    written = (one for process in event.processes for one in recent.transfers_between(process, *window, writes=True))
    return max(grown, sum(one.transferred_bounds.best for one in written)) >= HALF * event.bytes


def is_small_of_memory(event: EventContext) -> bool:
    """Small share of its processes' memory, or that was not sampled: a state is a large share."""
    return not event.memory_bytes or event.bytes < LITTLE_SHARE * event.memory_bytes
