"""The run, job and storage of a checkpoint across nodes, and whether its run could resume from it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ckptprof.cluster.model import ClusterCheckpoint
from ckptprof.frameworks.placekeys import file_system_key
from ckptprof.frameworks.runkeys import job_key
from ckptprof.model import Kind, Medium

OBJECT_STORE, LOCAL, UNKNOWN_STORAGE = "object store", "local", "not known"


def run_of(one: ClusterCheckpoint) -> str:
    """Return the key of a run; without one, node and job."""
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


def with_restorable(checkpoints: Iterable[ClusterCheckpoint]) -> list[ClusterCheckpoint]:
    """Return checkpoints, sorted by start, with `is_restorable`.

    A node participates if it wrote before: for a node without a database, its last save counts; for a monitored node,
    the previous save, because a run may change to fewer writing nodes.
    """
    found: list[ClusterCheckpoint] = []
    wrote: dict[str, set[str]] = {}  # of each run, in the last save with all nodes observed
    before: dict[str, set[str]] = {}
    for one in checkpoints:
        if one.whole.kind is Kind.SAVE:
            run, mine = run_of(one), {part.host for part in one.nodes}
            earlier = wrote.get(run, set())
            missing = earlier - mine if one.is_partial else set[str]()
            missing |= before.get(run, set()) & set(one.waited)
            wrote[run] = earlier | mine if one.is_partial else mine
            before[run] = mine
            is_restorable = one.whole.is_restorable and not missing
            one = msgspec.structs.replace(one, is_restorable=is_restorable)  # noqa: PLW2901 # with more details
        found.append(one)
    return found
