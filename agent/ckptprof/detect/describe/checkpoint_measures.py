"""Assembles what was measured around a checkpoint: the raw material of its diagnosis."""

from __future__ import annotations

from msgspec.structs import replace

from ckptprof.detect.describe.before_save import measure_before_save
from ckptprof.detect.describe.clean_up import measure_clean_up
from ckptprof.detect.describe.connection_measures import measure_connections
from ckptprof.detect.describe.draft import Draft
from ckptprof.detect.describe.process_measures import (
    list_job_processes,
    measure_job_memory,
    measure_others,
    measure_processes,
)
from ckptprof.detect.describe.thread_measures import list_acts, measure_threads
from ckptprof.detect.tolerances import MOST_SHARE, WHOLE_SHARE
from ckptprof.detect.world.host.device_counters import DeviceUsers
from ckptprof.detect.world.spans import Span, length
from ckptprof.measures import DeviceMeasure, Measures, MountMeasure
from ckptprof.model import Mode
from ckptprof_collectors.samples import MountInfo


def measure_checkpoint(draft: Draft) -> Measures:
    """Measure everything; None or empty for what was not observed."""
    candidate, world = draft.candidate, draft.world
    start_ns, end_ns = candidate.start_ns, candidate.end_ns
    acts = list_acts(draft)
    mount = draft.world.devices.mount_of(draft.path)
    files, spent_ns, after_ns = measure_clean_up(draft)
    before = measure_before_save(draft)
    before_ns = before.blocked_ns if before is not None else 0
    packing, devices = draft.stall.packing, _devices(draft)
    return Measures(
        threads=measure_threads(draft, acts),
        processes=measure_processes(draft, acts),
        others=measure_others(draft, acts, devices),
        devices=devices,
        connections=measure_connections(draft),
        gpu_sent_bytes=world.gpu_traffic.sent_bytes(list_job_processes(draft), start_ns - before_ns, end_ns)
        if candidate.writes and draft.stall.mode is not Mode.ASYNC
        else None,  # a job that continues training transfers other data as well
        links=world.devices.links.measures(start_ns, end_ns, writes=candidate.writes),
        mount=_mount(draft, mount) if mount is not None else None,
        memory=world.memory.between(start_ns, end_ns),
        job_memory=measure_job_memory(draft, start_ns - before_ns) if candidate.writes else None,
        before=before,
        clean_up_ns=spent_ns,
        clean_up_files=files,
        clean_up_after_ns=after_ns,
        awaited=_awaited_child(draft),
        packed_ns=length(packing) or None,
        packing_busy=_busiest_child(draft, packing[-1]) if packing else None,
        cores=draft.world.header.cores,
        lost_share=world.starvation.lost_share(start_ns, end_ns),
    )


def _awaited_child(draft: Draft) -> str | None:
    world, start_ns, end_ns = draft.world, draft.candidate.start_ns, draft.candidate.end_ns
    waiting = {one for one in draft.writers if world.threads.child_waits(one, start_ns, end_ns)}
    ran = [
        (min(end_ns, world.ended.get(process, end_ns)) - max(start_ns, history.first_ns), process)
        for process, history in (world.histories.items() if waiting else ())
        if world.jobs.parent(process) in waiting
    ]
    return world.jobs.comm(max(ran)[1]) if ran and max(ran)[0] > 0 else None


def _busiest_child(draft: Draft, span: Span) -> float | None:
    world, least_ns = draft.world, MOST_SHARE * (span[1] - span[0])
    used = [
        usage.busy
        for process, history in world.histories.items()
        if world.jobs.parent(process) in draft.writers
        and min(span[1], world.ended.get(process, span[1])) - max(span[0], history.first_ns) >= least_ns
        and (usage := world.usage.totals(process, *span)) is not None
    ]
    return max(used, default=None)


def _mount(draft: Draft, mount: MountInfo) -> MountMeasure:
    start_ns, end_ns, world = draft.candidate.start_ns, draft.candidate.end_ns, draft.world
    measure = world.devices.clients.enrich(world.fuse.measure(mount, start_ns, end_ns), mount, start_ns, end_ns)
    chain = world.devices.chain_of(draft.path)
    paths = world.devices.paths
    return replace(
        measure,
        paths=paths.measures(chain, start_ns, end_ns),
        cut_off_seconds=paths.unreachable_seconds(chain, start_ns, end_ns),
    )


def _devices(draft: Draft) -> tuple[DeviceMeasure, ...]:
    candidate, disks = draft.candidate, draft.world.devices.disks
    chain = draft.world.devices.chain_of(draft.path)
    start_ns, end_ns = candidate.start_ns, candidate.end_ns
    if candidate.writes and chain and draft.durable_ns is not None and draft.durable_ns > end_ns:
        written = disks.written_bytes(chain[0], start_ns, end_ns)
        if written is not None and written < WHOLE_SHARE * candidate.bytes:  # write-back continues until it is durable
            end_ns = draft.durable_ns
    infos = [draft.world.jobs.info(process) for process in draft.writers]
    cgroups = frozenset(info.cgroup for info in infos if info is not None and info.cgroup is not None)
    users = DeviceUsers(frozenset(process[0] for process in draft.writers), cgroups)
    return disks.measures(chain, (start_ns, end_ns), users, writes=candidate.writes)
