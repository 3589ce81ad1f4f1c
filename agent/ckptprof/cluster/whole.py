"""The checkpoint of several nodes as one, in the noun of a checkpoint: what is worked out of that is so of it, too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

import msgspec

from ckptprof.cluster.clocks import Timed
from ckptprof.cluster.model import NodePart
from ckptprof.model import Checkpoint, Destination, Level, Mode, Moments, Pattern, Sent, Status
from ckptprof.units import speed
from ckptprof.verdicts import Cost, Verdict

_Told = TypeVar("_Told", bound=Hashable)


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
    """Return the sum; None if one of them is not known."""
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)


def _last_ns(group: Sequence[Timed], of: Callable[[Checkpoint], int | None]) -> int | None:
    """Return the last of such moments of all nodes, on their one clock; None if one of them is not known."""
    moments = [None if (at_ns := of(one.event.checkpoint)) is None else at_ns - (one.ahead_ns or 0) for one in group]
    return None if None in moments else max(at_ns for at_ns in moments if at_ns is not None)


def _sent(every: Sequence[Checkpoint]) -> Sent | None:
    """Return what went to object stores, the one that got most first; as many are told as of a node."""
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
    """Return what it cost all nodes together, as far as it is known of each."""
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
