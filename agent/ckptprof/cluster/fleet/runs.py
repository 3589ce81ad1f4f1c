"""Common parts of fleet answers: grouping of checkpoints by run, job and storage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from ckptprof.bounds import Count
from ckptprof.cluster.model import ClusterCheckpoint
from ckptprof.frameworks.placekeys import file_system_key
from ckptprof.frameworks.runkeys import job_key
from ckptprof.model import Kind, Medium

_Key = TypeVar("_Key")
OBJECT_STORE, LOCAL, UNKNOWN_STORAGE = "object store", "local", "not known"


class FleetAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Common fields of all answers."""

    checkpoints: Count  # saves and restores; one across nodes counts once
    unread: tuple[str, ...] = ()  # errors of unreadable databases, whose checkpoints are missing


def saves_and_restores(checkpoints: Iterable[ClusterCheckpoint]) -> list[ClusterCheckpoint]:
    """Return the saves and restores."""
    return [one for one in checkpoints if one.whole.kind is not Kind.COPY]


def run_of(one: ClusterCheckpoint) -> str:
    """Return the key of a checkpoint's run, with its restart; without a run, node and job."""
    run = one.whole.run
    if run is None:
        return f"{one.nodes[0].host}/{one.whole.job}"
    return f"{run.key}+{run.restart}" if run.restart and f"+{run.restart}" not in run.key else run.key


def job_of(one: ClusterCheckpoint) -> str:
    """Return the key of a job, common to its restarts by the scheduler."""
    return run_of(one) if one.whole.run is None else job_key(one.whole.run)


def storage_of(one: ClusterCheckpoint) -> str:
    """Return the name of the storage, equal on all nodes."""
    if one.whole.medium is Medium.OBJECT:
        return OBJECT_STORE
    place = one.whole.place
    if place is None or place.shared is None:
        return UNKNOWN_STORAGE
    return file_system_key(place.key) if place.shared else LOCAL


def grouped(
    checkpoints: Iterable[ClusterCheckpoint], key: Callable[[ClusterCheckpoint], _Key]
) -> dict[_Key, Sequence[ClusterCheckpoint]]:
    """Group checkpoints by a key, in order."""
    found: dict[_Key, list[ClusterCheckpoint]] = {}
    for one in checkpoints:
        found.setdefault(key(one), []).append(one)
    return dict(found)
