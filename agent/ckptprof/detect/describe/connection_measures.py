"""The TCP connections that may matter for a checkpoint: of its mount's server or daemon, and of its processes.

For a disk behind NVMe over TCP the servers are its targets. If none of these is known, the connections of a network
mount are selected by their bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from ckptprof.detect.describe.draft import Draft
from ckptprof.detect.describe.process_measures import list_job_processes
from ckptprof.detect.tolerances import FEW, LITTLE_SHARE, SIGNIFICANT_BYTES
from ckptprof.detect.transfers.model.sending import OTHER_ADDRESSES
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.world.host.connection_counters import ConnectionTraffic, Endpoint
from ckptprof.detect.world.host.devices import is_network_mount
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.world import World
from ckptprof.measures import ConnectionMeasure, Measures
from ckptprof.model import Destination, Sent

_LOOPBACK = ("lo",)


@dataclass
class _ConnectionGroup:
    """Endpoints that differ only in their owner or local address."""

    relation: str
    endpoints: list[Endpoint] = field(default_factory=list)
    traffic: list[ConnectionTraffic] = field(default_factory=list)

    @property
    def transferred_bytes(self) -> float:
        return sum(one.sent_bytes + one.received_bytes for one in self.traffic)

    def measure(self, seconds: float) -> ConnectionMeasure:
        first = self.endpoints[0]
        busy = _sum_or_none(one.busy_us for one in self.traffic)
        rounds = [one for one in self.traffic if one.rtt_us is not None]
        weight = sum(one.sent_bytes + one.received_bytes for one in rounds)
        retransmitted = _sum_or_none(one.retransmitted_bytes for one in self.traffic)
        shortest = min((one.min_rtt_us for one in self.traffic if one.min_rtt_us is not None), default=None)
        rtt_us = sum((one.rtt_us or 0) * (one.sent_bytes + one.received_bytes) for one in rounds) / max(weight, 1)
        return ConnectionMeasure(
            remote=first.remote,
            port=first.port,
            accepted=first.accepted,
            links=first.interfaces,
            processes=tuple(sorted({one.owner[0] for one in self.endpoints if one.owner is not None})) or None,
            relation=self.relation,
            sockets=sum(one.sockets for one in self.traffic),
            sent_bytes=round(sum(one.sent_bytes for one in self.traffic)),
            received_bytes=round(sum(one.received_bytes for one in self.traffic)),
            retransmitted_bytes=None if retransmitted is None else round(retransmitted),
            seconds=seconds,
            busy_seconds=None if busy is None else busy / 1e6,
            rwnd_share=_share(_sum_or_none(one.rwnd_limited_us for one in self.traffic), busy),
            sndbuf_share=_share(_sum_or_none(one.sndbuf_limited_us for one in self.traffic), busy),
            rtt_seconds=rtt_us / 1e6 if weight else None,
            min_rtt_seconds=None if shortest is None else shortest / 1e6,
        )


def measure_connections(draft: Draft) -> tuple[ConnectionMeasure, ...]:
    """Measure the connections that may matter, most bytes first; at most sixteen."""
    start_ns, end_ns = draft.candidate.start_ns, draft.candidate.end_ns
    sums: dict[tuple[object, ...], _ConnectionGroup] = {}
    for endpoint, traffic, relation in _related_endpoints(draft):
        one = sums.setdefault((endpoint[:4], relation), _ConnectionGroup(relation))
        one.endpoints.append(endpoint)
        one.traffic.append(traffic)
    busiest = sorted(sums.values(), key=lambda one: -one.transferred_bytes)[:FEW]
    return tuple(one.measure((end_ns - start_ns) / 1e9) for one in busiest)


def summarize_sendings(parts: Collection[Transfer]) -> Sent | None:
    """Summarise where parts were sent to or received from; None if they are files."""
    sendings = [part.sending for part in parts if part.sending is not None]
    if not sendings:
        return None
    sums: Counter[tuple[str, int]] = Counter()
    for one in sendings:
        sums.update(one.endpoints)
    for place in [place for place in sums if place[0] == OTHER_ADDRESSES]:
        del sums[place]
    counted = [one for one in sendings if one.is_counted]
    number = sum(one.parts for one in counted)
    # of a restore the last answer of a connection counts only after the next request
    all_counted = len(counted) == len(sendings) and (number > 0 or all(part.writes for part in parts))
    open_at_once = [one.connections for one in sendings if one.connections is not None]
    return Sent(
        destinations=tuple(Destination(remote=at, port=port, bytes=sent) for (at, port), sent in sums.most_common(FEW)),
        connections=sum(open_at_once) if len(open_at_once) == len(sendings) else None,
        parts=number if all_counted else None,
        part_bytes=sum(one.parts_bytes for one in counted) // number if all_counted and number else None,
    )


def other_namespace_limitation(world: World, measures: Measures, writers: Iterable[ProcessKey]) -> tuple[str, ...]:
    """Limitation if the connections with a server may be in another network namespace; else empty."""
    if measures.mount is None or not measures.mount.remote or measures.connections:
        return ()
    infos = (world.jobs.own_or_forker_info(process) for process in writers)
    if not any(info is not None and info.in_other_network for info in infos):
        return ()
    return ("its TCP connections: its processes are in another network namespace than ckptprof",)


def _related_endpoints(draft: Draft) -> Iterable[tuple[Endpoint, ConnectionTraffic, str]]:
    candidate, devices = draft.candidate, draft.world.devices
    mount = devices.mount_of(draft.path)
    addresses = frozenset(mount.addresses) if mount is not None else frozenset()
    daemon = frozenset(draft.world.fuse.daemon_of(mount)) if mount is not None else frozenset()
    members = frozenset(list_job_processes(draft))
    targets = devices.paths.targets(devices.chain_of(draft.path))
    stores = {place for part in candidate.parts if part.sending for place in part.sending.endpoints}
    found = []
    by_bytes = []
    for endpoint, traffic in devices.connections.traffic_between(candidate.start_ns, candidate.end_ns):
        place = endpoint.remote, endpoint.port
        is_store = place in stores and endpoint.owner in members
        if (endpoint.remote in addresses or place in targets or is_store) and not endpoint.accepted:
            found.append((endpoint, traffic, "server"))
        elif endpoint.owner in daemon:
            found.append((endpoint, traffic, "daemon"))
        elif endpoint.owner in members:
            if traffic.sent_bytes + traffic.received_bytes >= SIGNIFICANT_BYTES:
                found.append((endpoint, traffic, "process"))
        elif endpoint.interfaces != _LOOPBACK and not endpoint.accepted:
            transferred = traffic.sent_bytes if candidate.writes else traffic.received_bytes
            if transferred >= LITTLE_SHARE * candidate.bytes:
                by_bytes.append((endpoint, traffic, "bytes"))
    is_known = any(relation != "process" for _, _, relation in found)
    return found if is_known or mount is None or not is_network_mount(mount) else [*found, *by_bytes]


def _sum_or_none(values: Iterable[float | None]) -> float | None:
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else min(1.0, part / whole)
