"""Signals for saves sent to an object store, against everything else that a process sends.

They are its other activity, and what its program saved, or resumed from, before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from ckptprof import units
from ckptprof.detect.events.event import Event
from ckptprof.detect.tolerances import ALL_SHARE, BESIDE_NS, COMMIT_NS, LITTLE_SHARE, NEARLY_ALL, is_of_one_state
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.frameworks.places import OBJECT_STORE_PORTS

HALF = 0.5
_LEAST_PART_BYTES = 5 << 20  # S3 rejects smaller parts, except the last (EntityTooSmall)


class Moved(NamedTuple):
    """The bytes that the sockets of some processes counted."""

    sent_bytes: float = 0.0
    received_bytes: float = 0.0


def place(event: Event) -> str:
    """Return its destination, or its source."""
    endpoints = dict.fromkeys(one for part in event.parts if part.sending for one in part.sending.endpoints)
    more = f" and {len(endpoints) - 1} more" if len(endpoints) > 1 else ""
    address, port = next(iter(endpoints))
    return f"port {port} of {address}{more}"


def parts(event: Event) -> str | None:
    """Return the number and mean size of its parts, if each was answered and as large as a store's minimum."""
    seen = [part.sending for part in event.parts if part.sending is not None and part.sending.is_counted]
    number, size = sum(one.parts for one in seen), sum(one.parts_bytes for one in seen)
    whole = number > 1 and size >= NEARLY_ALL * event.bytes and size >= _LEAST_PART_BYTES * (number - 1)
    return f"{number} parts of {units.size(size / number)}" if whole else None


def answered(event: Event) -> bool:
    """Return whether its processes received more than the answers to uploads.

    During it, over any connection: gradients, calls of services, a data set. Since the previous one of its series, from
    such ports: federated rounds send a state and fetch the next.
    """
    until_ns = max(part.last_data_ns(event.world.clock) for part in event.parts) + BESIDE_NS
    counted = sum(part.sending.returned_bytes for part in event.parts if part.sending is not None)
    if max(_came(event, event.start_ns, until_ns), counted) >= LITTLE_SHARE * event.bytes:
        return True
    if not event.series:
        return False
    ports = OBJECT_STORE_PORTS.union(port for part in event.parts if part.sending for _, port in part.sending.endpoints)
    return _came(event, event.series[-1].end_ns, event.start_ns, ports) >= HALF * event.bytes


def _came(event: Event, start_ns: int, end_ns: int, ports: Collection[int] | None = None) -> float:
    """Return what its processes received, by their sockets or, where these are not observed, their calls."""
    looked = moved_by_sockets(event, start_ns, end_ns, ports).received_bytes
    sent = event.known.transfers.sent
    return max(looked, sum(sent.counted_bytes(one, start_ns, end_ns, ports, sends=False) for one in event.processes))


def sent_to_stores(event: Event, start_ns: int, end_ns: int) -> float:
    """Return what its processes sent to ports of object stores, at most: by samples of sockets, or their calls."""
    connections = event.world.devices.connections
    looked = connections.sent_bytes_about(start_ns, end_ns, event.processes, OBJECT_STORE_PORTS)
    sent = event.known.transfers.sent
    counted = (sent.counted_bytes(one, start_ns, end_ns, OBJECT_STORE_PORTS, sends=True) for one in event.processes)
    return max(looked, sum(counted))


def moved_by_sockets(event: Event, start_ns: int, end_ns: int, ports: Collection[int] | None = None) -> Moved:
    """Return what its processes sent and received over all connections, or those to some ports, by samples."""
    own = [
        traffic
        for endpoint, traffic in event.world.devices.connections.between(start_ns, end_ns, event.processes)
        if ports is None or endpoint.port in ports
    ]
    return Moved(sum(one.sent_bytes for one in own), sum(one.received_bytes for one in own))


def per_process(event: Event) -> list[int]:
    """Return the bytes of each of its processes."""
    each: Counter[ProcessKey] = Counter()
    for part in event.parts:
        each[part.process] += part.bytes
    return list(each.values())


def fetched(event: Event) -> bool:
    """Return whether its job fetched as much from there at its start, and not again since."""
    held = event.known.deferred.fetched(event.job, event.remembered, event.known.past)
    return any(is_of_one_state(one.event.bytes, event.bytes, ALL_SHARE) for one in held)


def as_large(event: Event) -> bool:
    """Return whether its program has saved as much otherwise: to files, or in an earlier run."""
    own = event.remembered
    return any(
        is_of_one_state(state.bytes, own.bytes, ALL_SHARE) and own.may_be(state)
        for state in event.known.past.states(own.programs)
        if not (state.processes & own.processes and state.shapes & own.shapes)
    )


def from_files(event: Event) -> bool:
    """Return whether its processes read as much at the same time: files are uploaded, whoever wrote them."""
    span = event.start_ns - BESIDE_NS, event.end_ns
    read = sum(event.world.histories[process].returned_bytes(*span) for process in event.processes)
    return max(read, _touched_bytes(event, *span)) >= HALF * event.bytes


def _touched_bytes(event: Event, start_ns: int, end_ns: int) -> int:
    """Return the growth of file-backed memory of processes with mappings; files touched before do not show."""
    recent = event.known.transfers.recent
    mapping = (
        process
        for process in event.processes
        if any(one.is_mapped for one in recent.moved(process, start_ns, end_ns, writes=False))
    )
    return sum(event.world.usage.touched_of_files(process, start_ns, end_ns) for process in mapping)


def beside_files(event: Event) -> bool:
    """Return whether its processes wrote as much to files just before or at the same time: those show the save."""
    recent = event.known.transfers.recent
    around = event.start_ns - COMMIT_NS, event.end_ns
    grown = sum(recent.written_bytes(one, *around) for one in event.processes)
    moved = (one for process in event.processes for one in recent.moved(process, *around, writes=True))
    return max(grown, sum(one.moved.best for one in moved)) >= HALF * event.bytes


def small(event: Event) -> bool:
    """Return whether it is little of its processes' memory, or that was not sampled: a state is much of it."""
    looks = (event.world.usage.memory(one, event.start_ns, event.end_ns) for one in event.processes)
    has = sum(max(look.level_bytes for look in one) if one else 0 for one in looks)
    return not has or event.bytes < LITTLE_SHARE * has
