"""Merge the databases of several nodes into checkpoints across nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from statistics import median
from typing import Literal, TypeVar

import msgspec

from ckptprof.cluster.clocks import (
    NodeEvent,
    TimedEvent,
    align_clocks,
    bound_ns,
    distinct,
    identifies_one,
    join_events,
    key_of,
)
from ckptprof.cluster.model import ClusterCheckpoint, NodePart, NodeRecord
from ckptprof.cluster.runs import with_restorable
from ckptprof.cluster.stragglers import describe_straggler, find_last_node, with_history
from ckptprof.model import Checkpoint, Destination, Kind, Level, Mode, Moments, Pattern, Sent, Status, Watched
from ckptprof.units import NS, speed
from ckptprof.verdicts import Cost, Verdict

_Value = TypeVar("_Value", bound=Hashable)


def merge(records: Sequence[NodeRecord]) -> tuple[ClusterCheckpoint, ...]:
    """Return the checkpoints of all nodes, sorted by start and numbered from 1."""
    keyed: dict[tuple[object, ...], list[NodeEvent]] = {}
    alone: list[NodeEvent] = []
    for event in distinct(records):
        key = key_of(event.checkpoint)
        if key is None:
            alone.append(event)
        else:
            keyed.setdefault(key, []).append(event)
    for key in [key for key, events in keyed.items() if not identifies_one(key, events)]:
        alone += keyed.pop(key)
    watched: dict[str, list[Watched]] = {}
    for record in records:
        watched.setdefault(record.host, []).append(record.watched)
    found: list[ClusterCheckpoint] = []
    for event in alone:
        one = event.checkpoint
        found.append(_merge_group([TimedEvent(event, one.start_ns, one.end_ns, bound_ns(one))], {}, one.job))
    for events in keyed.values():
        job = common(event.checkpoint.job for event in events) or ""  # a node may use another name
        timed = align_clocks(events)
        first_starts: dict[str, int] = {}
        for at in timed:
            first_starts.setdefault(at.event.host, at.start_ns)
        hosts = {host: (start_ns, watched[host]) for host, start_ns in first_starts.items()}
        for kind in Kind:
            groups = join_events([one for one in timed if one.event.checkpoint.kind is kind])
            found += with_history(_merge_group(group, hosts, job) for group in groups)
    found.sort(key=lambda one: (one.whole.start_ns, one.whole.uid))
    return tuple(
        msgspec.structs.replace(one, whole=msgspec.structs.replace(one.whole, id=number))
        for number, one in enumerate(with_restorable(found), start=1)
    )


def _merge_group(
    group: Sequence[TimedEvent], hosts: Mapping[str, tuple[int, list[Watched]]], job: str
) -> ClusterCheckpoint:
    """Merge events into a checkpoint; `hosts`: first start and monitored time of each node."""
    by_host: dict[str, list[TimedEvent]] = {}
    for one in group:
        by_host.setdefault(one.event.host, []).append(one)
    expected_nodes, expected_ranks = _expected(group)
    parts = tuple(_part(by_host[host], expected_nodes or len(by_host)) for host in sorted(by_host))
    bound = _bound_ns(group)
    start_ns, end_ns = _span(group, is_comparable=bound is not None)
    ends = [max(one.end_ns for one in events) for events in by_host.values()]
    spread = max(ends) - min(ends) if len(ends) > 1 and bound is not None else None
    last = None if bound is None else find_last_node(group, bound)
    waiting = (
        () if expected_nodes is not None and len(parts) >= expected_nodes else hosts.items()
    )  # without nodes that left
    waited = tuple(
        sorted(
            host
            for host, (first_start_ns, monitored) in waiting
            if host not in by_host and first_start_ns < end_ns and _were_monitored(monitored, start_ns, end_ns)
        )
    )
    straggler = describe_straggler(*last, parts) if last is not None else None
    return ClusterCheckpoint(
        whole=merge_checkpoint(group, parts, (start_ns, end_ns), job, None if straggler is None else straggler.host),
        nodes=parts,
        nodes_expected=expected_nodes,
        ranks_observed=sum(part.ranks for part in parts),
        ranks_expected=expected_ranks,
        waited=waited,
        is_partial=expected_nodes is not None and len(parts) + len(waited) < expected_nodes,
        place=_place(group),
        spread_seconds=None if spread is None else spread / NS,
        clock_bound_seconds=None if bound is None else bound / NS,
        is_within_clock_error=len(ends) > 1 and (bound is None or spread is None or spread <= bound),
        straggler=straggler,
    )


def _expected(group: Sequence[TimedEvent]) -> tuple[int | None, int | None]:
    runs = [run for one in group if (run := one.event.checkpoint.run) is not None]
    nodes = max((run.nodes for run in runs if run.nodes), default=None)
    ranks = max((run.ranks for run in runs if run.ranks), default=None)
    if ranks is None:
        ranks = max((one.event.checkpoint.ranks or 0 for one in group), default=0) or None
    return nodes, ranks


def _bound_ns(group: Sequence[TimedEvent]) -> int | None:
    """Return the error bound of the difference of two nodes' ends; None: unknown."""
    by_host: dict[str, int] = {}
    for one in group:
        if one.bound_ns is None:
            return None
        by_host[one.event.host] = max(one.bound_ns, by_host.get(one.event.host, 0))
    return sum(sorted(by_host.values())[-2:])


def _span(group: Sequence[TimedEvent], *, is_comparable: bool) -> tuple[int, int]:
    """Return start and end; without comparable clocks, the duration is that of the slowest node by its own clock."""
    starts = [one.start_ns for one in group]
    if is_comparable:
        return min(starts), max(one.end_ns for one in group)
    start_ns = round(median(starts))
    return start_ns, start_ns + max(one.end_ns - one.start_ns for one in group)


def _were_monitored(monitored: Iterable[Watched], start_ns: int, end_ns: int) -> bool:
    return any(
        one.start_ns is not None
        and one.end_ns is not None
        and one.start_ns <= start_ns
        and end_ns <= one.end_ns
        and not any(gap.start_ns < end_ns and start_ns < gap.end_ns for gap in one.gaps)
        for one in monitored
    )


def _part(events: Sequence[TimedEvent], nodes: int) -> NodePart:
    lead = max(events, key=lambda one: (one.event.checkpoint.bytes, one.event.checkpoint.uid))
    first, every = lead.event.checkpoint, [one.event.checkpoint for one in events]
    stalls = [one.stall_ns for one in every if one.stall_ns is not None]
    stall = max(stalls) / NS if stalls else None
    gpus = _gpus(first, nodes)
    return NodePart(
        host=lead.event.host,
        database=lead.event.database,
        id=first.id,
        uid=first.uid,
        start_ns=min(one.start_ns for one in every),
        end_ns=max(one.end_ns for one in every),
        ahead_seconds=None if lead.ahead_ns is None else lead.ahead_ns / NS,
        clock_bound_seconds=None if lead.bound_ns is None else lead.bound_ns / NS,
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
    """Return the GPUs of a node; a count by ranks covers all nodes."""
    cost = one.cost
    if cost is None or not cost.gpus:
        return None
    return cost.gpus / nodes if cost.gpus_from == "ranks" else cost.gpus


def _place(group: Sequence[TimedEvent]) -> Literal["shared", "per-node"] | None:
    """Return True if all nodes wrote into one folder; None: unknown, different keys may name the same folder."""
    places = {place.key: place.shared for one in group if (place := one.event.checkpoint.place) is not None}
    if len(places) == 1 and (len({one.event.host for one in group}) > 1 or True in places.values()):
        return "shared"
    return "per-node" if places and set(places.values()) == {False} else None


def merge_checkpoint(
    group: Sequence[TimedEvent], parts: Sequence[NodePart], span: tuple[int, int], job: str, last: str | None
) -> Checkpoint:
    """Return the merged checkpoint; that of a single node keeps all details."""
    every = [one.event.checkpoint for one in group]
    first = every[0]
    if len(every) == 1:
        durable_ns = _last_ns(group, lambda one: one.durable_ns)
        return msgspec.structs.replace(first, start_ns=span[0], end_ns=span[1], durable_ns=durable_ns, job=job)
    stalls = [one.stall_ns for one in every if one.stall_ns is not None]
    transferred_bytes = sum(one.bytes for one in every)
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
        bytes=transferred_bytes,
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
        cost=_cost(parts, every, transferred_bytes, span),
        level=Level.TRACE if all(one.level is Level.TRACE for one in every) else Level.POLL,
        limitations=(),
        evidence=tuple(one for checkpoint in every if checkpoint.risks for one in checkpoint.evidence),
        confidence=max(one.confidence for one in every),
    )


def common(values: Iterable[_Value | None]) -> _Value | None:
    """Return the most frequent value, None ignored; of equally frequent ones the first in the alphabet."""
    counted = Counter(value for value in values if value is not None)
    return min(counted, key=lambda value: (-counted[value], str(value)), default=None)


def _same(values: Iterable[_Value]) -> _Value | None:
    """Return the common value; None if they differ."""
    found = set(values)
    return found.pop() if len(found) == 1 else None


def _sum(values: Iterable[int | None]) -> int | None:
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)


def _last_ns(group: Sequence[TimedEvent], of: Callable[[Checkpoint], int | None]) -> int | None:
    """Return the last of these times of all nodes, on the common clock; None if one is unknown."""
    moments = [None if (at_ns := of(one.event.checkpoint)) is None else at_ns - (one.ahead_ns or 0) for one in group]
    return None if None in moments else max(at_ns for at_ns in moments if at_ns is not None)


def _sent(every: Sequence[Checkpoint]) -> Sent | None:
    sent = [one.sent for one in every if one.sent is not None]
    if not sent:
        return None
    by_destination = Counter[tuple[str, int]]()
    for one in sent:
        by_destination.update({(to.remote, to.port): to.bytes for to in one.destinations})
    most = max(len(one.destinations) for one in sent)
    return Sent(
        destinations=tuple(
            Destination(remote=at, port=port, bytes=of) for (at, port), of in by_destination.most_common(most)
        ),
        connections=_sum(one.connections for one in sent),
        parts=_sum(one.parts for one in sent),
    )


def _mode(every: Sequence[Checkpoint]) -> Mode | None:
    """Return sync if training was blocked on any node."""
    modes = {one.mode for one in every}
    return Mode.SYNC if Mode.SYNC in modes else Mode.ASYNC if Mode.ASYNC in modes else None


def _verdict(group: Sequence[TimedEvent], last: str | None) -> Verdict | None:
    """Return the verdict of the straggler; else the longest one with the most frequent limit."""
    diagnosed = [(one, verdict) for one in group if (verdict := one.event.checkpoint.verdict) is not None]
    own = [pair for pair in diagnosed if pair[0].event.host == last]
    if not own:
        limit = common(verdict.limit for _, verdict in diagnosed)
        own = [pair for pair in diagnosed if pair[1].limit is limit]
    return max(own, key=lambda pair: pair[1].seconds)[1] if own else None


def _cost(
    parts: Sequence[NodePart], every: Sequence[Checkpoint], transferred_bytes: int, span: tuple[int, int]
) -> Cost:
    gpus = sum(part.gpus for part in parts if part.gpus is not None)
    spent = [part.gpu_seconds for part in parts if part.gpu_seconds is not None]
    stalls = [part.stall_seconds for part in parts if part.stall_seconds is not None]
    rate = speed(transferred_bytes, span[1] - span[0])
    background = [one.cost.background_seconds for one in every if one.cost is not None]
    return Cost(
        stall_seconds=max(stalls, default=None),
        background_seconds=max((seconds for seconds in background if seconds is not None), default=None),
        gpus=round(gpus) or None,
        gpus_from=common(one.cost.gpus_from for one in every if one.cost is not None),
        gpu_seconds=sum(spent) if spent else None,
        bytes_per_second=rate,
        bytes_per_second_per_gpu=rate / gpus if rate is not None and gpus else None,
    )
