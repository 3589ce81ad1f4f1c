"""The checkpoints of several nodes, each as one: what is worked out of those of one node is so of these, too."""

from __future__ import annotations

from collections.abc import Sequence

from ckptprof.cluster.model import ClusterCheckpoint, NodeRecord
from ckptprof.model import CheckpointQuery, Report, Watched
from ckptprof.report import summary


def as_report(checkpoints: Sequence[ClusterCheckpoint], records: Sequence[NodeRecord]) -> Report:
    """Return the checkpoints, each as one, as a report of one host would have them."""
    starts = [one.watched.start_ns for one in records if one.watched.start_ns is not None]
    ends = [one.watched.end_ns for one in records if one.watched.end_ns is not None]
    watched = Watched(start_ns=min(starts, default=None), end_ns=max(ends, default=None))
    return Report(host=None, watched=watched, checkpoints=tuple(one.whole for one in checkpoints))


def chosen(
    checkpoints: Sequence[ClusterCheckpoint], records: Sequence[NodeRecord], query: CheckpointQuery
) -> list[ClusterCheckpoint]:
    """Return what fits a question, as the store would answer it."""
    fitting = {one.id for one in summary.selected(as_report(checkpoints, records), query).checkpoints}
    return [one for one in checkpoints if one.whole.id in fitting]
