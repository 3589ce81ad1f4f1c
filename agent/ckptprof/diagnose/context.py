"""A checkpoint with the measurements around it, in seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ckptprof.diagnose.ceilings import READ, WRITE, Ceilings, ceiling_for, fastest
from ckptprof.diagnose.tolerances import CLEARLY, FEW, MOST, PART, SLIGHT, TICK_SECONDS
from ckptprof.figures import duration_seconds, median, of_complete
from ckptprof.measures import ConnectionMeasure, DeviceMeasure, LinkMeasure, Measures, MemoryMeasure, PathMeasure
from ckptprof.model import Checkpoint, Kind
from ckptprof.units import NS

_REMOTE_FS_TYPES = frozenset(
    {"nfs", "nfs4", "lustre", "ceph", "cifs", "smb3", "9p", "beegfs", "gpfs", "glusterfs", "wekafs"}
)


def or_zero(value: float | None) -> float:
    """Return a value, 0 if it was not observed: only for sums in which that makes no difference."""
    return value or 0.0


def rate_of(amount: float, spent: float) -> float:
    """Return an amount per second; less than a tick counts as one."""
    return amount / max(spent, TICK_SECONDS)


def seconds(value_ns: int | None) -> float | None:
    """Convert nanoseconds to seconds, None if not observed."""
    return None if value_ns is None else value_ns / NS


def busy_share(device: DeviceMeasure | None) -> float | None:
    """Return the share of the sampled time in which a device had requests: not of a checkpoint that is shorter.

    The kernel leaves out requests between two ticks: where few are in flight, their mean number is the share.
    """
    if device is None or device.busy_seconds is None or not device.seconds:
        return None
    busy, in_flight = device.busy_seconds / device.seconds, or_zero(device.mean_queue)
    return min(1.0, max(busy, in_flight) if in_flight <= SLIGHT else busy)


@dataclass(frozen=True)
class CheckpointContext:
    """A checkpoint and what was measured around it."""

    checkpoint: Checkpoint
    measures: Measures
    history: tuple[Checkpoint, ...]  # earlier ones of its job, oldest first
    ceiling: Ceilings | None

    @property
    def is_save(self) -> bool:
        """Whether it is a save."""
        return self.checkpoint.kind is not Kind.RESTORE

    @property
    def span(self) -> float:
        """Seconds from its start to its end."""
        return max(0, self.checkpoint.end_ns - self.checkpoint.start_ns) / NS

    @property
    def transferred_bytes(self) -> float:
        """Bytes that its processes transferred for it, including staging and copies."""
        return max(self.checkpoint.bytes, or_zero(self.checkpoint.written_bytes) if self.is_save else 0.0)

    @property
    def files(self) -> float:
        """Number of its files, including those that it created and removed."""
        return max(self.checkpoint.files, or_zero(self.checkpoint.metadata.created))

    @property
    def ranks(self) -> int:
        """Number of ranks of the job, 1 if not known."""
        return max(int(or_zero(self.checkpoint.ranks)), self._known_ranks)

    @property
    def ranks_here(self) -> int:
        """Number of ranks that may write on this host."""
        run = self.checkpoint.run
        return self._known_ranks if run is not None and or_zero(run.nodes) > 1 else self.ranks

    @property
    def _known_ranks(self) -> int:
        known = {one.rank for one in self.measures.processes} | {one.rank for one in self.checkpoint.writers}
        return max(len(known - {None}), 1)

    @property
    def is_remote(self) -> bool:
        """Whether it was written to storage behind a network."""
        mount = self.measures.mount
        is_far = mount is not None and (mount.remote or mount.fs_type in _REMOTE_FS_TYPES)
        return is_far or self.checkpoint.sent is not None

    @property
    def fs_type(self) -> str:
        """Type of its file system in lower case, "" if not known."""
        return self.measures.mount.fs_type.lower() if self.measures.mount is not None else ""

    @property
    def is_direct(self) -> bool:
        """Whether most of it bypassed the page cache."""
        return or_zero(self.checkpoint.pattern.direct_share_bytes) >= MOST

    @property
    def is_mapped(self) -> bool:
        """Whether most of it was transferred by page faults of a mapped file."""
        if or_zero(self.checkpoint.pattern.mapped_share_bytes) >= MOST:
            return True
        faulted = sum(or_zero(one.faulted_bytes) for one in self.measures.processes)
        return not self.is_save and self.checkpoint.bytes > 0 and faulted >= MOST * self.checkpoint.bytes

    @property
    def device_bytes(self) -> float | None:
        """Bytes that the device transferred in the checkpoint's direction."""
        return None if self.device is None else self.bytes_of(self.device)

    def seconds_of_device(self, device: DeviceMeasure | None) -> float | None:
        """Return the seconds of the checkpoint in which a device was counted; None: it was sampled over a longer time.

        Requests of a longer time are those of the checkpoint if they are no more than its own, and done by its end.
        """
        if device is None or device.seconds <= (1 + SLIGHT) * self.span:
            return None if device is None else device.seconds or None
        is_done = (
            not self.is_save or self.is_direct or 0 < or_zero(self.checkpoint.durable_ns) <= self.checkpoint.end_ns
        )
        is_own = device.read_bytes + device.written_bytes <= CLEARLY * self.transferred_bytes
        return self.span if is_own and is_done and or_zero(device.busy_seconds) <= self.span else None

    def busy_of(self, device: DeviceMeasure | None) -> float | None:
        """Return the share of the checkpoint in which a device had requests; None if that was not observed."""
        spent, busy = self.seconds_of_device(device), busy_share(device)
        return min(1.0, busy * device.seconds / spent) if device and spent and busy is not None else None

    def rate_of_device(self, device: DeviceMeasure | None) -> float | None:
        """Return its bytes per second in the checkpoint, at most the best second of a long one; None: not observed."""
        spent = self.seconds_of_device(device)
        if device is None or spent is None:
            return None
        best = max(or_zero(device.shown_bytes_per_second), or_zero(device.peak_bytes_per_second))
        return min(self.bytes_of(device) / spent, (spent == device.seconds and best) or math.inf)

    def bytes_of(self, device: DeviceMeasure) -> int:
        """Return what a device transferred in the checkpoint's direction."""
        return device.written_bytes if self.is_save else device.read_bytes

    @property
    def foreign_bytes(self) -> float:
        """Bytes that its disk transferred for other processes: what it read, and what they wrote as far as observed."""
        if self.device is None or self.is_remote or any(one.fetched_bytes is None for one in self.measures.processes):
            return 0.0
        read = self.device.read_bytes - sum(or_zero(one.fetched_bytes) for one in self.measures.processes)
        written = self.device.written_bytes - self.transferred_bytes * self.is_save
        seen = sum(one.disk_bytes for one in self.measures.others)
        return max(0.0, read) + max(0.0, min(written, seen - max(0.0, read)))

    @property
    def is_disk_shared(self) -> bool:
        """Whether its disk transferred a third of the bytes, or more, for other processes."""
        whole = 0 if self.device is None else self.device.read_bytes + self.device.written_bytes
        return whole > 0 and self.foreign_bytes >= PART * whole

    @property
    def device_operations(self) -> float | None:
        """Requests that the device completed in the checkpoint's direction."""
        if self.device is None:
            return None
        return self.device.writes if self.is_save else self.device.reads

    @property
    def device_operations_per_second(self) -> float | None:
        """Requests per second of the checkpoint that the device completed in its direction; None if not observed."""
        spent = self.seconds_of_device(self.device)
        return rate_of(self.device_operations, spent) if self.device_operations and spent else None

    @property
    def request_bytes(self) -> float | None:
        """Mean request size of the device; None for a few requests."""
        if not self.device_operations or self.device_operations < FEW:
            return None
        return or_zero(self.device_bytes) / self.device_operations

    @property
    def device_flushes(self) -> float | None:
        """Flushes of the device with the fewest in its stack: below a loop or dm device others flush, too."""
        return min((known for one in self.measures.devices if (known := one.flushes) is not None), default=None)

    @property
    def link_bytes(self) -> float | None:
        """Bytes that the link transferred in the checkpoint's direction, including kernel bypass."""
        return None if self.link is None else self._bytes_over(self.link)

    @property
    def fastest_second(self) -> float | None:
        """Bytes in the fastest second of the device in its direction; None if it may be a short checkpoint and idle."""
        best = None if self.device is None else self.device.shown_bytes_per_second
        return best if abs((best or 0.0) - self.transferred_bytes) > PART * self.transferred_bytes else None

    @property
    def probed(self) -> float | None:
        """Highest rate that `ckptprof ceiling` measured in this direction, in bytes per second."""
        found = None if self.ceiling is None else fastest(self.ceiling, WRITE if self.is_save else READ)
        return None if found is None else found.bytes_per_second

    @property
    def used_share(self) -> float | None:
        """Share of the host's CPUs that the job used; None if not observed for all of its processes."""
        busy = [one.busy for one in self.measures.processes]
        known = [one for one in busy if one is not None]
        if not self.measures.cores or not known or len(known) < len(busy):
            return None
        return sum(known) / self.measures.cores

    @property
    def usual_seconds(self) -> float | None:
        """Median duration of the earlier checkpoints of its job, kind and size; None for fewer than two."""
        alike = [one for one in self.history if one.kind is self.checkpoint.kind]
        spent = of_complete((one for one in alike if one.bytes >= MOST * self.checkpoint.bytes), duration_seconds)
        return median(spent) if len(spent) > 1 else None

    @property
    def memory(self) -> MemoryMeasure:
        """Memory of the host."""
        return self.measures.memory or MemoryMeasure()

    @property
    def syncs(self) -> float | None:
        """Number of syncs of its threads, None if not counted."""
        known = [one.syncs for one in self.measures.threads if one.syncs is not None]
        traced = self.checkpoint.metadata.synced
        return max(sum(known), or_zero(traced)) if known or traced is not None else None

    def stacks(self, pid: int | None = None) -> dict[str, float]:
        """Return the shares of Python stack samples of the writing threads by function class; empty without samples."""
        counted: dict[str, float] = {}
        for one in self.measures.processes:
            if pid is None or one.pid == pid:
                for name, samples in (one.stacks or {}).items():
                    counted[name] = counted.get(name, 0.0) + samples
        total = sum(counted.values())
        return {name: samples / total for name, samples in counted.items()} if total else {}

    @cached_property
    def device(self) -> DeviceMeasure | None:
        """The device that counts its bytes, of those that transferred them by its end: below a loop device none may."""

        def rank(one: DeviceMeasure) -> tuple[bool, bool, int]:
            return self.bytes_of(one) >= MOST * self.transferred_bytes, one.countable, self.bytes_of(one)

        return max(self.measures.devices, key=rank, default=None)

    @property
    def paths(self) -> tuple[PathMeasure, ...]:
        """The paths to the disk under the files; empty unless it is NVMe behind a fabric."""
        return self.measures.mount.paths if self.measures.mount is not None else ()

    @property
    def connections(self) -> list[ConnectionMeasure]:
        """The connections that certainly belong to the storage behind the mount."""
        return [one for one in self.measures.connections if one.relation in ("server", "daemon") and not one.accepted]

    @cached_property
    def link(self) -> LinkMeasure | None:
        """The link to the storage: that of its connections, else the one with most traffic."""
        carried: set[str] = set()
        transferred = sum((one.sent_bytes if self.is_save else one.received_bytes) for one in self.connections)
        if transferred >= MOST * self.checkpoint.bytes:
            carried = {link for one in self.connections for link in one.links}
        links = [one for one in self.measures.links if one.name in carried] or self._of_paths
        if links:
            return max(links, key=self._bytes_over)
        if {one.transport for one in self.paths} == {"fc"}:  # its ports are not sampled
            return None
        links = [one for one in self.measures.links if one.countable and one.kind != "loopback"]
        shaped = [one for one in self.measures.links if one.shaped_overlimits or one.shaped_drops]
        if not self.is_save:  # received traffic is shaped at the other end: this link has no counters of it
            shaped += [
                one for one in self.measures.links if one.kind != "loopback" and one.shaped_overlimits is not None
            ]
        best = max([*links, *shaped], key=self._own_bytes, default=None)
        loops = (one for one in self.measures.links if one.kind == "loopback")
        loop = max(loops, key=lambda one: one.sent_bytes, default=None)
        if loop is None or best is None:
            return best or loop
        return loop if loop.sent_bytes > 2 * self._own_bytes(best) else best

    @property
    def _of_paths(self) -> list[LinkMeasure]:
        """Links that the paths to a disk behind a fabric use; for RDMA all ports if none is named."""
        named = {one.link for one in self.paths if one.link is not None}
        if {one.transport for one in self.paths} != {"rdma"}:
            return [one for one in self.measures.links if one.name in named]
        ports = [one for one in self.measures.links if one.kind == "rdma"]
        return [one for one in ports if one.name in named or one.interface in named] or ports

    def _bytes_over(self, link: LinkMeasure) -> float:
        """Return the traffic of a link in bytes; the driver counts RoCE and the like, too."""
        kernel, wire = link.received_bytes, link.wire_received_bytes
        if self.is_save:
            kernel, wire = link.sent_bytes, link.wire_sent_bytes
        return max(kernel, or_zero(wire))

    def _own_bytes(self, link: LinkMeasure) -> float:
        """Return the traffic of a link in bytes; kernel bypass counts for the RDMA port alone."""
        if link.name in {one.interface for one in self.measures.links if one.kind == "rdma"}:
            return link.sent_bytes if self.is_save else link.received_bytes
        return self._bytes_over(link)


def gather_context(
    checkpoint: Checkpoint, history: Sequence[Checkpoint] = (), ceilings: Sequence[Ceilings] | None = None
) -> CheckpointContext:
    """Collect what is known about one checkpoint; `history` may contain any checkpoints."""
    measures = checkpoint.measures or Measures()
    of_job = [one for one in history if one.job == checkpoint.job and one.uid != checkpoint.uid]
    before = sorted((one for one in of_job if one.start_ns <= checkpoint.start_ns), key=lambda one: one.start_ns)
    mount_point = measures.mount.mount_point if measures.mount is not None else None
    ceiling = ceiling_for(checkpoint.path, ceilings, mount_point=mount_point) if checkpoint.path and ceilings else None
    return CheckpointContext(checkpoint, measures, tuple(before), ceiling)
