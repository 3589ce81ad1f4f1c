"""Puts together what was measured around a checkpoint: the raw material of its diagnosis."""

from __future__ import annotations

from ckptprof.detect.describe.before_save import before_of
from ckptprof.detect.describe.clean_up import cleaned_up, cleared_ns
from ckptprof.detect.describe.draft import Draft
from ckptprof.detect.describe.process_measures import processes_of
from ckptprof.detect.describe.thread_measures import acts_of, measured
from ckptprof.detect.world.host.device_counters import Users
from ckptprof.measures import DeviceMeasure, Measures
from ckptprof.model import Mode

_WRITTEN = 0.9  # of a save: if the devices have less of it by its end, they write on until it is durable


def measures_of(draft: Draft) -> Measures:
    """Return everything that was seen; what was not is None or empty."""
    candidate, world = draft.candidate, draft.known.world
    start_ns, end_ns = candidate.start_ns, candidate.end_ns
    acts = acts_of(draft)
    mount = world.devices.mount_of(draft.path)
    removed, removing_ns = clean_up_of(draft)
    return Measures(
        threads=measured(draft, acts),
        processes=processes_of(draft, acts),
        devices=_devices(draft),
        links=world.host.links.measures(start_ns, end_ns, writes=candidate.writes),
        mount=world.host.fuse.measure(mount, start_ns, end_ns) if mount is not None else None,
        memory=world.host.memory.between(start_ns, end_ns),
        before=before_of(draft),
        clean_up_ns=removing_ns,
        clean_up_files=removed,
        clean_up_after_ns=_cleared(draft, seen=removed is not None),
        cores=draft.known.world.header.cores,
    )


def clean_up_of(draft: Draft) -> tuple[int | None, int | None]:
    """Return (files, time) of what its processes deleted of others' files so far; None: that cannot be seen."""
    candidate = draft.candidate
    seen = draft.known.world.health.sees_names and any(part.operations is not None for part in candidate.parts)
    if not candidate.writes or not seen:
        return None, None
    return cleaned_up(candidate, draft.known)


def _cleared(draft: Draft, *, seen: bool) -> int | None:
    """Return for how long training was held by deletion right after a save; nothing is held by it beside training."""
    if not draft.candidate.writes or draft.stall.mode is Mode.ASYNC:
        return 0 if seen else None
    held_ns = cleared_ns(draft.candidate, draft.known)
    return 0 if held_ns is None and seen else held_ns


def _devices(draft: Draft) -> tuple[DeviceMeasure, ...]:
    candidate, disks = draft.candidate, draft.known.world.host.disks
    chain = draft.known.world.devices.chain_of(draft.path)
    start_ns, end_ns = candidate.start_ns, candidate.end_ns
    if candidate.writes and chain and draft.durable_ns is not None and draft.durable_ns > end_ns:
        written = disks.written_bytes(chain[0], start_ns, end_ns)
        if written is not None and written < _WRITTEN * sum(part.bytes for part in candidate.parts):
            end_ns = draft.durable_ns
    infos = [draft.known.world.jobs.info(process) for process in candidate.processes]
    cgroups = frozenset(info.cgroup for info in infos if info is not None and info.cgroup is not None)
    users = Users(frozenset(process[0] for process in candidate.processes), cgroups)
    return disks.measures(chain, (start_ns, end_ns), users, writes=candidate.writes)
