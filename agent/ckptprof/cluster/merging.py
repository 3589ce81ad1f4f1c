"""What the databases of several nodes tell, as checkpoints over all of them; a node alone has its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Literal

import msgspec

from ckptprof.cluster.clocks import Event, Timed, bound_ns, on_one_clock
from ckptprof.cluster.joining import distinct, is_of_one, joined, key_of
from ckptprof.cluster.model import ClusterCheckpoint, NodePart, NodeRecord
from ckptprof.cluster.stragglers import last_of, told, with_past
from ckptprof.cluster.whole import common, whole_of
from ckptprof.model import Checkpoint, Kind, Watched

_NS = 1_000_000_000


def merge(records: Sequence[NodeRecord]) -> tuple[ClusterCheckpoint, ...]:
    """Return the checkpoints of all nodes in the order of their start, numbered from 1 in it."""
    keyed: dict[tuple[object, ...], list[Event]] = {}
    alone: list[Event] = []
    for event in distinct(records):
        key = key_of(event.checkpoint)
        if key is None:
            alone.append(event)
        else:
            keyed.setdefault(key, []).append(event)
    for key in [key for key, events in keyed.items() if not is_of_one(key, events)]:
        alone += keyed.pop(key)
    watched = _watched(records)
    found = [_one([_as_it_is(event)], {}, event.checkpoint.job) for event in alone]
    for events in keyed.values():
        job = common(event.checkpoint.job for event in events) or ""  # a node may have a name of its own for it
        timed = on_one_clock(events)
        begun: dict[str, int] = {}
        for one in timed:
            begun.setdefault(one.event.host, one.start_ns)
        hosts = {host: (start_ns, watched[host]) for host, start_ns in begun.items()}
        for kind in Kind:
            groups = joined([one for one in timed if one.event.checkpoint.kind is kind])
            found += with_past(_one(group, hosts, job) for group in groups)
    found.sort(key=lambda one: (one.whole.start_ns, one.whole.uid))
    return tuple(_numbered(one, number) for number, one in enumerate(found, start=1))


def _as_it_is(event: Event) -> Timed:
    one = event.checkpoint
    return Timed(event, one.start_ns, one.end_ns, bound_ns(one))


def _numbered(one: ClusterCheckpoint, number: int) -> ClusterCheckpoint:
    return msgspec.structs.replace(one, whole=msgspec.structs.replace(one.whole, id=number))


def _watched(records: Iterable[NodeRecord]) -> dict[str, list[Watched]]:
    found: dict[str, list[Watched]] = {}
    for record in records:
        found.setdefault(record.host, []).append(record.watched)
    return found


def _one(group: Sequence[Timed], hosts: Mapping[str, tuple[int, list[Watched]]], job: str) -> ClusterCheckpoint:
    """Return the checkpoint that is made of events; `hosts`: of each node its first start, and what of it was seen."""
    by_host: dict[str, list[Timed]] = {}
    for one in group:
        by_host.setdefault(one.event.host, []).append(one)
    told_nodes, told_ranks = _expected(group)
    parts = tuple(_part(by_host[host], told_nodes or len(by_host)) for host in sorted(by_host))
    bound = _bound_ns(group)
    start_ns, end_ns = _span(group, is_comparable=bound is not None)
    ends = [max(one.end_ns for one in events) for events in by_host.values()]
    spread = max(ends) - min(ends) if len(ends) > 1 and bound is not None else None
    last = None if bound is None else last_of(group, bound)
    waiting = () if told_nodes is not None and len(parts) >= told_nodes else hosts.items()  # a node that left is not
    waited = tuple(
        sorted(
            host
            for host, (begun_ns, seen) in waiting
            if host not in by_host and begun_ns < end_ns and _were(seen, start_ns, end_ns)
        )
    )
    straggler = told(*last, parts) if last is not None else None
    return ClusterCheckpoint(
        whole=whole_of(group, parts, (start_ns, end_ns), job, None if straggler is None else straggler.host),
        nodes=parts,
        nodes_expected=told_nodes,
        ranks_seen=sum(part.ranks for part in parts),
        ranks_expected=told_ranks,
        waited=waited,
        is_partial=told_nodes is not None and len(parts) + len(waited) < told_nodes,
        place=_place(group),
        spread_seconds=None if spread is None else spread / _NS,
        clock_bound_seconds=None if bound is None else bound / _NS,
        is_within_clock_error=len(ends) > 1 and (bound is None or spread is None or spread <= bound),
        straggler=straggler,
    )


def _expected(group: Sequence[Timed]) -> tuple[int | None, int | None]:
    """Return how many nodes and ranks the run has."""
    runs = [run for one in group if (run := one.event.checkpoint.run) is not None]
    nodes = max((run.nodes for run in runs if run.nodes), default=None)
    ranks = max((run.ranks for run in runs if run.ranks), default=None)
    if ranks is None:
        ranks = max((one.event.checkpoint.ranks or 0 for one in group), default=0) or None
    return nodes, ranks


def _bound_ns(group: Sequence[Timed]) -> int | None:
    """Return how far apart two ends of different nodes may be told that are not; None: nobody knows."""
    worst: dict[str, int] = {}
    for one in group:
        if one.bound_ns is None:
            return None
        worst[one.event.host] = max(one.bound_ns, worst.get(one.event.host, 0))
    return sum(sorted(worst.values())[-2:])


def _span(group: Sequence[Timed], *, is_comparable: bool) -> tuple[int, int]:
    """Return start and end; where clocks cannot be compared it is as long as the node that took longest by its own."""
    starts = [one.start_ns for one in group]
    if is_comparable:
        return min(starts), max(one.end_ns for one in group)
    start_ns = round(median(starts))
    return start_ns, start_ns + max(one.end_ns - one.start_ns for one in group)


def _were(seen: Iterable[Watched], start_ns: int, end_ns: int) -> bool:
    """Return whether a node was watched all that time."""
    return any(
        one.start_ns is not None
        and one.end_ns is not None
        and one.start_ns <= start_ns
        and end_ns <= one.end_ns
        and not any(gap.start_ns < end_ns and start_ns < gap.end_ns for gap in one.gaps)
        for one in seen
    )


def _part(events: Sequence[Timed], nodes: int) -> NodePart:
    """Return what one node of so many did."""
    lead = max(events, key=lambda one: (one.event.checkpoint.bytes, one.event.checkpoint.uid))
    first, every = lead.event.checkpoint, [one.event.checkpoint for one in events]
    stalls = [one.stall_ns for one in every if one.stall_ns is not None]
    stall = max(stalls) / _NS if stalls else None
    gpus = _gpus(first, nodes)
    return NodePart(
        host=lead.event.host,
        database=lead.event.database,
        id=first.id,
        uid=first.uid,
        start_ns=min(one.start_ns for one in every),
        end_ns=max(one.end_ns for one in every),
        ahead_seconds=None if lead.ahead_ns is None else lead.ahead_ns / _NS,
        clock_bound_seconds=None if lead.bound_ns is None else lead.bound_ns / _NS,
        bytes=sum(one.bytes for one in every),
        files=sum(one.files for one in every),
        ranks=len({writer.pid if writer.rank is None else writer.rank for one in every for writer in one.writers}),
        stall_seconds=stall,
        gpus=gpus,
        gpu_seconds=stall * gpus if stall is not None and gpus is not None else None,
        limit=None if first.verdict is None else first.verdict.limit,
        path=first.path,
    )


def _gpus(one: Checkpoint, nodes: int) -> float | None:
    """Return the GPUs of a node; where one is counted for each rank, these are the ranks of all nodes."""
    cost = one.cost
    if cost is None or not cost.gpus:
        return None
    return cost.gpus / nodes if cost.gpus_from == "ranks" else cost.gpus


def _place(group: Sequence[Timed]) -> Literal["shared", "per-node"] | None:
    """Return whether its nodes wrote into one folder; None: nobody can tell, as where another key may be the same."""
    places = {place.key: place.shared for one in group if (place := one.event.checkpoint.place) is not None}
    if len(places) == 1 and (len({one.event.host for one in group}) > 1 or True in places.values()):
        return "shared"
    return "per-node" if places and set(places.values()) == {False} else None
