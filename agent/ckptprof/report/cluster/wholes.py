"""The checkpoints of several nodes, each as one: what is worked out of those of one node is so of these, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from ckptprof.cluster.model import ClusterCheckpoint, NodeRecord
from ckptprof.model import CheckpointQuery, Kind, Report, Watched
from ckptprof.report import answer, summary
from ckptprof.report.answer import Answer


def as_report(checkpoints: Sequence[ClusterCheckpoint], records: Sequence[NodeRecord]) -> Report:
    """Return the checkpoints, each as one, as a report of one host would have them."""
    starts = [one.watched.start_ns for one in records if one.watched.start_ns is not None]
    ends = [one.watched.end_ns for one in records if one.watched.end_ns is not None]
    watched = Watched(start_ns=min(starts, default=None), end_ns=max(ends, default=None))
    return Report(host=None, watched=watched, checkpoints=tuple(one.whole for one in checkpoints))


def answer_of(checkpoints: Sequence[ClusterCheckpoint], report: Report) -> Answer:
    """Return what is concluded of them as a report; GPU time is of each node, for not all were blocked as long."""
    told = answer.of(report)
    spent: dict[str, float] = {}
    for one in checkpoints:
        cost = one.whole.cost
        if one.whole.kind is not Kind.COPY and cost is not None and cost.gpu_seconds is not None:
            spent[one.whole.job] = spent.get(one.whole.job, 0.0) + cost.gpu_seconds
    return replace(
        told, costs=tuple(msgspec.structs.replace(one, gpu_seconds=spent.get(one.job)) for one in told.costs)
    )


def chosen(
    checkpoints: Sequence[ClusterCheckpoint], records: Sequence[NodeRecord], query: CheckpointQuery
) -> list[ClusterCheckpoint]:
    """Return what fits a question, as the store would answer it."""
    fitting = {one.id for one in summary.selected(as_report(checkpoints, records), query).checkpoints}
    return [one for one in checkpoints if one.whole.id in fitting]
