"""What the answers have in common: which checkpoints are of one run, one job, one storage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from ckptprof.bounds import Count
from ckptprof.cluster.model import ClusterCheckpoint
from ckptprof.frameworks.placekeys import file_system_of
from ckptprof.frameworks.runkeys import job_key
from ckptprof.model import Kind, Medium

_Key = TypeVar("_Key")
OBJECT_STORE, LOCAL, NOT_KNOWN = "object store", "local", "not known"


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What each answer says of what it is made of."""

    checkpoints: Count  # saves and restores, each once on however many nodes
    unread: tuple[str, ...] = ()  # why other databases could not be read: what they have is missing here


def counted(checkpoints: Iterable[ClusterCheckpoint]) -> list[ClusterCheckpoint]:
    """Return the saves and restores."""
    return [one for one in checkpoints if one.whole.kind is not Kind.COPY]


def run_of(one: ClusterCheckpoint) -> str:
    """Return what the checkpoints of one run have in common; without a key it is a job of one node."""
    run = one.whole.run
    if run is None:
        return f"{one.nodes[0].host}/{one.whole.job}"
    return f"{run.key}+{run.restart}" if run.restart and f"+{run.restart}" not in run.key else run.key


def job_of(one: ClusterCheckpoint) -> str:
    """Return what the runs of one job have in common, which its scheduler has started again."""
    return run_of(one) if one.whole.run is None else job_key(one.whole.run)


def storage_of(one: ClusterCheckpoint) -> str:
    """Return what all checkpoints on one storage have in common, on whichever node."""
    if one.whole.medium is Medium.OBJECT:
        return OBJECT_STORE
    place = one.whole.place
    if place is None or place.shared is None:
        return NOT_KNOWN
    return file_system_of(place.key) if place.shared else LOCAL


def grouped(
    checkpoints: Iterable[ClusterCheckpoint], key: Callable[[ClusterCheckpoint], _Key]
) -> dict[_Key, Sequence[ClusterCheckpoint]]:
    """Return checkpoints by a key, in their order."""
    found: dict[_Key, list[ClusterCheckpoint]] = {}
    for one in checkpoints:
        found.setdefault(key(one), []).append(one)
    return dict(found)
