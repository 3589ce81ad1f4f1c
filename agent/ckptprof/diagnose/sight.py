"""What is known around one checkpoint, in seconds and with every number that cannot be left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ckptprof.diagnose.ceilings import READ, WRITE, Ceilings, ceiling_for, fastest
from ckptprof.measures import (
    ConnectionMeasure,
    DeviceMeasure,
    LinkMeasure,
    Measures,
    MemoryMeasure,
    PathMeasure,
)
from ckptprof.model import Checkpoint, Kind

NS = 1e9
MS = 1e3
MOST = 0.5  # of a whole: half of its seconds or bytes are most of them
SLIGHT = 0.1  # of a whole: less decides nothing, and is not told
_CLOCK_SECONDS = 1e-3  # a rate over less would tell of the clock
_FEW_REQUESTS = 8  # no mean is told of fewer
_PAST_THE_KERNEL = 2.0  # times what the kernel counted: headers make a tenth
_MOUNTED_FAR = frozenset(
    {"nfs", "nfs4", "lustre", "ceph", "cifs", "smb3", "9p", "beegfs", "gpfs", "glusterfs", "wekafs"}
)


def some(value: float | None) -> float:
    """Return it, 0 where it was not seen: only for sums in which that makes no difference."""
    return value or 0.0


def pace(amount: float, spent: float) -> float:
    """Return how much it was a second."""
    return amount / max(spent, _CLOCK_SECONDS)


def seconds(value_ns: int | None) -> float | None:
    """Return nanoseconds as seconds, None if they were not seen."""
    return None if value_ns is None else value_ns / NS


@dataclass(frozen=True)
class Sight:
    """A checkpoint, and what was measured and shown around it."""

    checkpoint: Checkpoint
    measures: Measures
    history: tuple[Checkpoint, ...]  # earlier ones of its job, oldest first
    ceiling: Ceilings | None

    @property
    def writes(self) -> bool:
        """Whether it is a save."""
        return self.checkpoint.kind is not Kind.RESTORE

    @property
    def span(self) -> float:
        """Seconds from its start to its end."""
        return max(0, self.checkpoint.end_ns - self.checkpoint.start_ns) / NS

    @property
    def moved(self) -> float:
        """Bytes that its processes moved for it, staging and copies included."""
        return max(self.checkpoint.bytes, some(self.checkpoint.written_bytes) if self.writes else 0.0)

    @property
    def remote(self) -> bool:
        """Whether what it was written to is behind a network."""
        mount = self.measures.mount
        is_far = mount is not None and (mount.remote or mount.fs_type in _MOUNTED_FAR)
        return is_far or self.checkpoint.sent is not None

    @property
    def fs_type(self) -> str:
        """The type of its file system in lower case, "" if that is not known."""
        return self.measures.mount.fs_type.lower() if self.measures.mount is not None else ""

    @property
    def direct(self) -> bool:
        """Whether most of it bypassed the page cache."""
        return some(self.checkpoint.pattern.direct_share_bytes) >= MOST

    @property
    def mapped(self) -> bool:
        """Whether most of it moved by page faults of a mapping."""
        if some(self.checkpoint.pattern.mapped_share_bytes) >= MOST:
            return True
        faulted = sum(some(one.faulted_bytes) for one in self.measures.processes)
        return not self.writes and self.checkpoint.bytes > 0 and faulted >= MOST * self.checkpoint.bytes

    @property
    def device_bytes(self) -> float | None:
        """Bytes that the device moved in the checkpoint's direction."""
        if self.device is None:
            return None
        return self.device.written_bytes if self.writes else self.device.read_bytes

    @property
    def device_operations(self) -> float | None:
        """Requests that the device completed in the checkpoint's direction."""
        if self.device is None:
            return None
        return self.device.writes if self.writes else self.device.reads

    @property
    def request_bytes(self) -> float | None:
        """The mean request of the device; None where hardly any were seen."""
        if not self.device_operations or self.device_operations < _FEW_REQUESTS:
            return None
        return some(self.device_bytes) / self.device_operations

    @property
    def device_flushes(self) -> float | None:
        """Flushes of the device with the fewest in its stack: what others flush comes in below a loop or a mapping."""
        return min((known for one in self.measures.devices if (known := one.flushes) is not None), default=None)

    @property
    def device_busy(self) -> float | None:
        """The share of the time in which the device had work."""
        if self.device is None or self.device.busy_seconds is None or not self.device.seconds:
            return None
        return min(1.0, self.device.busy_seconds / self.device.seconds)

    @property
    def link_bytes(self) -> float | None:
        """Bytes that the link moved in the checkpoint's direction, past the kernel or not."""
        return None if self.link is None else self._over(self.link)

    @property
    def probed(self) -> float | None:
        """Bytes per second of the best that `ckptprof ceiling` measured in this direction."""
        if self.ceiling is None:
            return None
        found = fastest(self.ceiling, WRITE if self.writes else READ)
        return None if found is None else found.bytes_per_second

    @property
    def used_share(self) -> float | None:
        """The share of the host's processors that the whole job used; None if that was not seen of all of it."""
        busy = [one.busy for one in self.measures.processes]
        known = [one for one in busy if one is not None]
        if not self.measures.cores or not known or len(known) < len(busy):
            return None
        return sum(known) / self.measures.cores

    @property
    def memory(self) -> MemoryMeasure:
        """The host's memory."""
        return self.measures.memory or MemoryMeasure()

    @property
    def syncs(self) -> float | None:
        """How many syncs its threads made, as far as anything counted them."""
        known = [one.syncs for one in self.measures.threads if one.syncs is not None]
        told = self.checkpoint.metadata.synced
        return max(sum(known), some(told)) if known or told is not None else None

    def stacks(self, pid: int | None = None) -> dict[str, float]:
        """Return the shares of what Python stacks of the writing threads showed; empty where nobody looked."""
        counted: dict[str, float] = {}
        for one in self.measures.processes:
            if pid is None or one.pid == pid:
                for name, looks in (one.stacks or {}).items():
                    counted[name] = counted.get(name, 0.0) + looks
        total = sum(counted.values())
        return {name: looks / total for name, looks in counted.items()} if total else {}

    @cached_property
    def device(self) -> DeviceMeasure | None:
        """The device that its bytes are counted at."""
        devices = [one for one in self.measures.devices if one.countable] or list(self.measures.devices)
        return max(devices, key=lambda one: one.written_bytes if self.writes else one.read_bytes, default=None)

    @property
    def paths(self) -> tuple[PathMeasure, ...]:
        """The paths to the disk under the files; none where it is no NVMe behind a fabric."""
        return self.measures.mount.paths if self.measures.mount is not None else ()

    @property
    def connections(self) -> list[ConnectionMeasure]:
        """The connections that are known to be with the storage behind the mount."""
        return [one for one in self.measures.connections if one.relation in ("server", "daemon") and not one.accepted]

    @cached_property
    def link(self) -> LinkMeasure | None:
        """The link that the storage is behind, as the connections with it tell; else the one that moved most."""
        carried: set[str] = set()
        moved = sum((one.sent_bytes if self.writes else one.received_bytes) for one in self.connections)
        if moved >= MOST * self.checkpoint.bytes:
            carried = {link for one in self.connections for link in one.links}
        links = [one for one in self.measures.links if one.name in carried] or self._of_paths
        if links:
            return max(links, key=self._over)
        if {one.transport for one in self.paths} == {"fc"}:  # its ports are no links that are looked at
            return None
        links = [one for one in self.measures.links if one.countable and one.kind != "loopback"]
        shaped = [one for one in self.measures.links if one.shaped_overlimits or one.shaped_drops]
        if not self.writes:  # what comes in is shaped at its other end: of such a link shows only that it is shaped
            shaped += [
                one for one in self.measures.links if one.kind != "loopback" and one.shaped_overlimits is not None
            ]
        best = max([*links, *shaped], key=self._own, default=None)
        loops = (one for one in self.measures.links if one.kind == "loopback")
        loop = max(loops, key=lambda one: one.sent_bytes, default=None)
        if loop is None or best is None:
            return best or loop
        return loop if loop.sent_bytes > 2 * self._own(best) else best

    @property
    def _of_paths(self) -> list[LinkMeasure]:
        """The links that the paths to a disk behind a fabric go through; of RDMA all ports if none is named."""
        named = {one.link for one in self.paths if one.link is not None}
        if {one.transport for one in self.paths} != {"rdma"}:
            return [one for one in self.measures.links if one.name in named]
        ports = [one for one in self.measures.links if one.kind == "rdma"]
        return [one for one in ports if one.name in named or one.interface in named] or ports

    def _over(self, link: LinkMeasure) -> float:
        """Return what went over a link: the kernel does not count RoCE and the like, its driver does."""
        kernel, wire = link.received_bytes, link.wire_received_bytes
        if self.writes:
            kernel, wire = link.sent_bytes, link.wire_sent_bytes
        return max(kernel, some(wire) if some(wire) > _PAST_THE_KERNEL * kernel else 0)

    def _own(self, link: LinkMeasure) -> float:
        """Return what went over a link; what goes past the kernel over an RDMA port is told of that."""
        if link.name in {one.interface for one in self.measures.links if one.kind == "rdma"}:
            return link.sent_bytes if self.writes else link.received_bytes
        return self._over(link)


def look(
    checkpoint: Checkpoint, history: Sequence[Checkpoint] = (), ceilings: Sequence[Ceilings] | None = None
) -> Sight:
    """Return what is known of one checkpoint; `history` may hold anything, only its job's earlier events count."""
    measures = checkpoint.measures or Measures()
    of_job = [one for one in history if one.job == checkpoint.job and one.uid != checkpoint.uid]
    before = sorted((one for one in of_job if one.start_ns <= checkpoint.start_ns), key=lambda one: one.start_ns)
    mount_point = measures.mount.mount_point if measures.mount is not None else None
    ceiling = ceiling_for(checkpoint.path, ceilings, mount_point=mount_point) if checkpoint.path and ceilings else None
    return Sight(checkpoint, measures, tuple(before), ceiling)
