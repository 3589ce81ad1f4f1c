"""What the databases of several nodes tell, as checkpoints over all of them; a node alone has its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from statistics import median
from typing import Literal, TypeVar

import msgspec

from ckptprof.cluster.clocks import Event, Timed, bound_ns, distinct, is_of_one, joined, key_of, on_one_clock
from ckptprof.cluster.model import ClusterCheckpoint, NodePart, NodeRecord
from ckptprof.cluster.stragglers import last_of, told, with_past
from ckptprof.model import Checkpoint, Destination, Kind, Level, Mode, Moments, Pattern, Sent, Status, Watched
from ckptprof.units import speed
from ckptprof.verdicts import Cost, Verdict

_NS = 1_000_000_000
_Told = TypeVar("_Told", bound=Hashable)


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
    watched: dict[str, list[Watched]] = {}
    for record in records:
        watched.setdefault(record.host, []).append(record.watched)
    found: list[ClusterCheckpoint] = []
    for event in alone:
        one = event.checkpoint
        found.append(_one([Timed(event, one.start_ns, one.end_ns, bound_ns(one))], {}, one.job))
    for events in keyed.values():
        job = common(event.checkpoint.job for event in events) or ""  # a node may have a name of its own for it
        timed = on_one_clock(events)
        begun: dict[str, int] = {}
        for at in timed:
            begun.setdefault(at.event.host, at.start_ns)
        hosts = {host: (start_ns, watched[host]) for host, start_ns in begun.items()}
        for kind in Kind:
            groups = joined([one for one in timed if one.event.checkpoint.kind is kind])
            found += with_past(_one(group, hosts, job) for group in groups)
    found.sort(key=lambda one: (one.whole.start_ns, one.whole.uid))
    return tuple(
        msgspec.structs.replace(one, whole=msgspec.structs.replace(one.whole, id=number))
        for number, one in enumerate(found, start=1)
    )


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
    return any(
        one.start_ns is not None
        and one.end_ns is not None
        and one.start_ns <= start_ns
        and end_ns <= one.end_ns
        and not any(gap.start_ns < end_ns and start_ns < gap.end_ns for gap in one.gaps)
        for one in seen
    )


def _part(events: Sequence[Timed], nodes: int) -> NodePart:
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


def whole_of(
    group: Sequence[Timed], parts: Sequence[NodePart], span: tuple[int, int], job: str, last: str | None
) -> Checkpoint:
    """Return the checkpoint as one; a node alone keeps what its own database tells."""
    every = [one.event.checkpoint for one in group]
    first = every[0]
    if len(every) == 1:
        durable_ns = _last_ns(group, lambda one: one.durable_ns)
        return msgspec.structs.replace(first, start_ns=span[0], end_ns=span[1], durable_ns=durable_ns, job=job)
    stalls = [one.stall_ns for one in every if one.stall_ns is not None]
    moved = sum(one.bytes for one in every)
    return Checkpoint(
        uid=min(one.uid for one in every),
        kind=first.kind,
        job=job,
        framework=common(one.framework for one in every),
        step=next((one.step for one in every if one.step is not None), None),
        ranks=max((one.ranks for one in every if one.ranks is not None), default=None),
        start_ns=span[0],
        end_ns=span[1],
        durable_ns=_last_ns(group, lambda one: one.durable_ns),
        bytes=moved,
        files=sum(one.files for one in every),
        path=common(one.path for one in every),
        sent=_sent(every),
        run=first.run,
        place=common(one.place for one in every),
        writers=(),
        mode=_mode(every),
        stall_ns=max(stalls, default=None),
        status=Status.INCOMPLETE if any(one.status is Status.INCOMPLETE for one in every) else Status.COMPLETE,
        moments=Moments(committed_ns=_last_ns(group, lambda one: one.moments.committed_ns)),
        written_bytes=_sum(one.written_bytes for one in every),
        unique_bytes=_sum(one.unique_bytes for one in every),
        storage_bytes=_sum(one.storage_bytes for one in every),
        cache=_same(one.cache for one in every),
        pattern=Pattern(class_=_same(one.pattern.class_ for one in every)),
        verdict=_verdict(group, last),
        cost=_cost(parts, every, moved, span),
        level=Level.TRACE if all(one.level is Level.TRACE for one in every) else Level.POLL,
        blind=(),
        evidence=tuple(one for checkpoint in every if checkpoint.risks for one in checkpoint.evidence),
        confidence=max(one.confidence for one in every),
    )


def common(values: Iterable[_Told | None]) -> _Told | None:
    """Return what most say, of those who say anything."""
    counted = Counter(value for value in values if value is not None)
    return max(counted, key=counted.__getitem__, default=None)


def _same(values: Iterable[_Told]) -> _Told | None:
    """Return what all say; None if they do not agree."""
    found = set(values)
    return found.pop() if len(found) == 1 else None


def _sum(values: Iterable[int | None]) -> int | None:
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)


def _last_ns(group: Sequence[Timed], of: Callable[[Checkpoint], int | None]) -> int | None:
    """Return the last of such moments of all nodes, on their one clock; None if one of them is not known."""
    moments = [None if (at_ns := of(one.event.checkpoint)) is None else at_ns - (one.ahead_ns or 0) for one in group]
    return None if None in moments else max(at_ns for at_ns in moments if at_ns is not None)


def _sent(every: Sequence[Checkpoint]) -> Sent | None:
    sent = [one.sent for one in every if one.sent is not None]
    if not sent:
        return None
    moved = Counter[tuple[str, int]]()
    for one in sent:
        moved.update({(to.remote, to.port): to.bytes for to in one.destinations})
    most = max(len(one.destinations) for one in sent)
    return Sent(
        destinations=tuple(Destination(remote=at, port=port, bytes=of) for (at, port), of in moved.most_common(most)),
        connections=_sum(one.connections for one in sent),
        parts=_sum(one.parts for one in sent),
    )


def _mode(every: Sequence[Checkpoint]) -> Mode | None:
    """Return sync if training was held on any node."""
    modes = {one.mode for one in every}
    return Mode.SYNC if Mode.SYNC in modes else Mode.ASYNC if Mode.ASYNC in modes else None


def _verdict(group: Sequence[Timed], last: str | None) -> Verdict | None:
    """Return the verdict on the straggler; without one, of those with the limit of most nodes that on the longest."""
    judged = [(one, verdict) for one in group if (verdict := one.event.checkpoint.verdict) is not None]
    own = [pair for pair in judged if pair[0].event.host == last]
    if not own:
        limit = common(verdict.limit for _, verdict in judged)
        own = [pair for pair in judged if pair[1].limit is limit]
    return max(own, key=lambda pair: pair[1].seconds)[1] if own else None


def _cost(parts: Sequence[NodePart], every: Sequence[Checkpoint], moved: int, span: tuple[int, int]) -> Cost:
    gpus = sum(part.gpus for part in parts if part.gpus is not None)
    spent = [part.gpu_seconds for part in parts if part.gpu_seconds is not None]
    stalls = [part.stall_seconds for part in parts if part.stall_seconds is not None]
    rate = speed(moved, span[1] - span[0])
    beside = [one.cost.background_seconds for one in every if one.cost is not None]
    return Cost(
        stall_seconds=max(stalls, default=None),
        background_seconds=max((seconds for seconds in beside if seconds is not None), default=None),
        gpus=round(gpus) or None,
        gpus_from=common(one.cost.gpus_from for one in every if one.cost is not None),
        gpu_seconds=sum(spent) if spent else None,
        bytes_per_second=rate,
        bytes_per_second_per_gpu=rate / gpus if rate is not None and gpus else None,
    )
