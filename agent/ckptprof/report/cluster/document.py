"""The JSON documents of `report`, `list` and `show` over several databases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ckptprof.cluster.model import ClusterCheckpoint, NodeRecord
from ckptprof.cluster.stragglers import SlowNode, slow_nodes
from ckptprof.model import Watched
from ckptprof.report.cluster.wholes import answer_of, as_report
from ckptprof.report.document import SCHEMA_VERSION, of, summary
from ckptprof.verdicts import Headline, JobCost


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked of a node."""

    host: str
    database: str
    watched: Watched


class ClusterReport(msgspec.Struct, frozen=True, kw_only=True):
    """The checkpoints that several databases tell, each once on however many nodes it was."""

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
    found = answer_of(checkpoints, as_report(checkpoints, records))
    told = ClusterReport(
        databases=tuple(Watch(host=one.host, database=one.database, watched=one.watched) for one in records),
        unread=tuple(unread),
        answer=found.headline,
        jobs=found.costs,
        slow=slow_nodes(checkpoints),
        checkpoints=(),
    )
    return {**of(told), "checkpoints": list(map(_told, checkpoints))}


def checkpoint_document(one: ClusterCheckpoint) -> dict[str, Any]:
    """Return the document of `show --json` over several databases."""
    return {"schema_version": SCHEMA_VERSION, "checkpoint": _told(one)}


def _told(one: ClusterCheckpoint) -> dict[str, Any]:
    return {**msgspec.to_builtins(one), "whole": summary(one.whole)}
