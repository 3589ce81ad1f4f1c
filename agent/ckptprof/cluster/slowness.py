"""What several checkpoints together tell of nodes: which are slow, and whose clocks are off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from ckptprof.bounds import Amount, Count
from ckptprof.cluster.model import ClusterCheckpoint, Straggler
from ckptprof.verdicts import Limit


class SlowNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that a run waited for again and again."""

    host: str
    job: str
    run: str | None  # its key
    times: Count  # that it was the straggler
    saves: Count  # in which it took part
    excess_seconds: Amount  # from the median end of the others to its end, of these times together
    waited_gpu_seconds: Amount | None  # of the other nodes, meanwhile
    limit: Limit | None  # its own, most of these times


def slow_nodes(checkpoints: Sequence[ClusterCheckpoint]) -> tuple[SlowNode, ...]:
    """Return the nodes that are called slow in any of these, that which cost the most first."""
    waits: dict[tuple[str | None, str], list[tuple[ClusterCheckpoint, Straggler]]] = {}
    took_part = Counter[tuple[str | None, str]]()
    for one in checkpoints:
        key = _key(one)
        took_part.update((key, part.host) for part in one.nodes if one.straggler is not None or len(one.nodes) > 1)
        if one.straggler is not None:
            waits.setdefault((key, one.straggler.host), []).append((one, one.straggler))
    found = [
        _slow(host, key, told, took_part[key, host])
        for (key, host), told in waits.items()
        if any(straggler.is_slow for _, straggler in told)
    ]
    return tuple(sorted(found, key=lambda one: (-one.excess_seconds, one.host)))


def _key(one: ClusterCheckpoint) -> str | None:
    return None if one.whole.run is None else one.whole.run.key


def _slow(host: str, key: str | None, told: Sequence[tuple[ClusterCheckpoint, Straggler]], saves: int) -> SlowNode:
    stragglers = [straggler for _, straggler in told]
    waited = [one.waited_gpu_seconds for one in stragglers if one.waited_gpu_seconds is not None]
    limits = Counter(one.limit for one in stragglers if one.limit is not None)
    return SlowNode(
        host=host,
        job=told[-1][0].whole.job,
        run=key,
        times=len(told),
        saves=saves,
        excess_seconds=sum(one.excess_seconds for one in stragglers),
        waited_gpu_seconds=sum(waited) if waited else None,
        limit=max(limits, key=limits.__getitem__, default=None),
    )


def clocks_off(checkpoints: Iterable[ClusterCheckpoint]) -> dict[str, float]:
    """Return the seconds by which clocks of nodes seem to be ahead of the others, negative behind, as of the last.

    Not where that is less than what is left of it from save to save.
    """
    off = {part.host: part for one in checkpoints for part in one.nodes if part.ahead_seconds is not None}
    return {
        host: part.ahead_seconds
        for host, part in off.items()
        if part.ahead_seconds is not None and abs(part.ahead_seconds) > (part.clock_bound_seconds or 0)
    }
