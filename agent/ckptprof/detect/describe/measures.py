"""Puts together what was measured around a checkpoint: the raw material of its diagnosis."""

from __future__ import annotations

from ckptprof.detect.describe.before_save import before_of
from ckptprof.detect.describe.context import Sight
from ckptprof.detect.describe.process_measures import processes_of
from ckptprof.detect.describe.thread_measures import acts_of, measured
from ckptprof.detect.world.device_counters import Users
from ckptprof.measures import DeviceMeasure, Measures
from ckptprof.model import Mode

_WRITTEN = 0.9  # of a save: if the devices have less of it by its end, they write on until it is durable


def measures_of(sight: Sight) -> Measures:
    """Return everything that was seen; what was not is None or empty."""
    candidate, books, around = sight.candidate, sight.books, sight.around
    start_ns, end_ns = candidate.start_ns, candidate.end_ns
    acts = acts_of(sight)
    mount = around.devices.mount_of(sight.path)
    removed, removing_ns = clean_up_of(sight)
    return Measures(
        threads=measured(sight, acts),
        processes=processes_of(sight, acts),
        devices=_devices(sight),
        links=books.links.measures(start_ns, end_ns, writes=candidate.writes),
        mount=books.fuse.measure(mount, start_ns, end_ns) if mount is not None else None,
        memory=books.memory.between(start_ns, end_ns),
        before=before_of(sight),
        clean_up_ns=removing_ns,
        clean_up_files=removed,
        clean_up_after_ns=_cleared(sight, seen=removed is not None),
        cores=sight.cores,
    )


def clean_up_of(sight: Sight) -> tuple[int | None, int | None]:
    """Return (files, time) of what its processes deleted of others' files so far; None: that cannot be seen."""
    candidate = sight.candidate
    traced = any(part.stream.trace is not None for part in candidate.parts)
    if not candidate.writes or not traced or not sight.health.sees_names:
        return None, None
    return sight.aftermath.cleaned_up(candidate)


def _cleared(sight: Sight, *, seen: bool) -> int | None:
    """Return for how long training was held by deletion right after a save; nothing is held by it beside training."""
    if not sight.candidate.writes or sight.hold.mode is Mode.ASYNC:
        return 0 if seen else None
    held_ns = sight.aftermath.cleared(sight.candidate)
    return 0 if held_ns is None and seen else held_ns


def _devices(sight: Sight) -> tuple[DeviceMeasure, ...]:
    candidate, disks = sight.candidate, sight.books.disks
    chain = sight.around.devices.chain_of(sight.path)
    start_ns, end_ns = candidate.start_ns, candidate.end_ns
    if candidate.writes and chain and sight.durable_ns is not None and sight.durable_ns > end_ns:
        written = disks.written_bytes(chain[0], start_ns, end_ns)
        if written is not None and written < _WRITTEN * sum(part.bytes for part in candidate.parts):
            end_ns = sight.durable_ns
    infos = [sight.around.jobs.info(process) for process in candidate.processes]
    cgroups = frozenset(info.cgroup for info in infos if info is not None and info.cgroup is not None)
    users = Users(frozenset(process[0] for process in candidate.processes), cgroups)
    return disks.measures(chain, (start_ns, end_ns), users, writes=candidate.writes)
