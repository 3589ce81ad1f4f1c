"""The checkpoints of several nodes as a report of one host, and as JSON documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from ckptprof.cluster.model import ClusterCheckpoint, NodeRecord
from ckptprof.cluster.stragglers import SlowNode, slow_nodes
from ckptprof.model import CheckpointQuery, Kind, Report, Watched
from ckptprof.report import answer
from ckptprof.report import summary as summaries
from ckptprof.report.answer import ReportAnswer
from ckptprof.report.document import SCHEMA_VERSION, summary, to_document
from ckptprof.verdicts import Headline, JobCost


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """The recorded time of a node."""

    host: str
    database: str
    watched: Watched


class ClusterReport(msgspec.Struct, frozen=True, kw_only=True):
    """The checkpoints in several databases, each listed once, on however many nodes it was."""

    databases: tuple[Watch, ...]
    unread: tuple[str, ...]  # why other databases could not be read: what they have is missing below
    answer: Headline | None  # what limited most of the lost time; None: nothing has a verdict
    jobs: tuple[JobCost, ...]  # the dearest first
    slow: tuple[SlowNode, ...]  # nodes that were the last of several saves, that which cost the most first
    checkpoints: tuple[ClusterCheckpoint, ...]  # in the order of their start


def report_document(
    checkpoints: Sequence[ClusterCheckpoint], records: Sequence[NodeRecord], unread: Sequence[str]
) -> dict[str, Any]:
    """Return the document of `report --json` and `list --json` over several databases."""
    found = answer_of(checkpoints, merge_into_report(checkpoints, records))
    document = ClusterReport(
        databases=tuple(Watch(host=one.host, database=one.database, watched=one.watched) for one in records),
        unread=tuple(unread),
        answer=found.headline,
        jobs=found.costs,
        slow=slow_nodes(checkpoints),
        checkpoints=(),
    )
    return {**to_document(document), "checkpoints": list(map(_to_json, checkpoints))}


def checkpoint_document(one: ClusterCheckpoint) -> dict[str, Any]:
    """Return the document of `show --json` over several databases."""
    return {"schema_version": SCHEMA_VERSION, "checkpoint": _to_json(one)}


def _to_json(one: ClusterCheckpoint) -> dict[str, Any]:
    return {**msgspec.to_builtins(one), "whole": summary(one.whole)}


def merge_into_report(checkpoints: Sequence[ClusterCheckpoint], records: Sequence[NodeRecord]) -> Report:
    """Combine the checkpoints into a report of one host."""
    starts = [one.watched.start_ns for one in records if one.watched.start_ns is not None]
    ends = [one.watched.end_ns for one in records if one.watched.end_ns is not None]
    watched = Watched(start_ns=min(starts, default=None), end_ns=max(ends, default=None))
    return Report(host=None, watched=watched, checkpoints=tuple(one.whole for one in checkpoints))


def answer_of(checkpoints: Sequence[ClusterCheckpoint], report: Report) -> ReportAnswer:
    """Draw the conclusions of the combined report; GPU time is summed over nodes, which may be blocked differently."""
    conclusion = answer.conclude(report)
    spent: dict[str, float] = {}
    for one in checkpoints:
        cost = one.whole.cost
        if one.whole.kind is not Kind.COPY and cost is not None and cost.gpu_seconds is not None:
            spent[one.whole.job] = spent.get(one.whole.job, 0.0) + cost.gpu_seconds
    return replace(
        conclusion,
        costs=tuple(msgspec.structs.replace(one, gpu_seconds=spent.get(one.job)) for one in conclusion.costs),
    )


def select(
    checkpoints: Sequence[ClusterCheckpoint], records: Sequence[NodeRecord], query: CheckpointQuery
) -> list[ClusterCheckpoint]:
    """Select the checkpoints that match a query, as the store does."""
    fitting = {one.id for one in summaries.selected(merge_into_report(checkpoints, records), query).checkpoints}
    return [one for one in checkpoints if one.whole.id in fitting]
