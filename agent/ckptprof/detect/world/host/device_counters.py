"""What the block devices under a checkpoint did during it, and the best that was ever measured on them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import msgspec

from ckptprof.detect.tolerances import SIMILAR_SHARE
from ckptprof.detect.world.bounded import MAX_ENTRIES, Bounded
from ckptprof.detect.world.counter_history import CounterHistories, CounterHistory, rounded
from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.measures import DeviceMeasure
from ckptprof.model import DeviceShare
from ckptprof.units import MS, NS
from ckptprof_collectors.counters import SECTOR_BYTES
from ckptprof_collectors.samples import DeviceInfo, DiskSample, ThrottleInfo

_Column = IntEnum(
    "_Column",
    "READS READ_SECTORS READ_MS WRITES WRITTEN_SECTORS WRITE_MS IO_MS WEIGHTED_MS DISCARDS FLUSHES FLUSH_MS",
    start=0,
)
_WRITES = _Column.WRITTEN_SECTORS, _Column.WRITES
_READS = _Column.READ_SECTORS, _Column.READS


class DeviceUsers(NamedTuple):
    """The processes that used a device."""

    pids: frozenset[int]
    cgroups: frozenset[str]


class DeviceWrites(NamedTuple):
    """Bytes that a device wrote in a time, and how long it was busy, with reads or writes."""

    bytes: int
    busy_ns: int


class DeviceCounters:
    """The counters of block devices, and the limits that are set on them."""

    def __init__(self) -> None:
        self._histories: CounterHistories[str] = CounterHistories(lambda: CounterHistory(
            len(_Column),
            rising=len(_Column),
            rated=(_Column.READS, _Column.READ_SECTORS, _Column.WRITES, _Column.WRITTEN_SECTORS),
            wraps=(_Column.READ_MS, _Column.WRITE_MS, _Column.IO_MS, _Column.WEIGHTED_MS, _Column.FLUSH_MS),
        ))  # fmt: skip
        self.infos: dict[str, DeviceInfo] = {}
        self._throttles: Bounded[tuple[str, str, int | None], ThrottleInfo] = Bounded(
            MAX_ENTRIES
        )  # device, cgroup, pid
        self._ended: Bounded[int, int] = Bounded(MAX_ENTRIES)

    def ingest(self, samples: FrameSamples) -> None:
        """Ingest the samples of a frame."""
        for info in samples.by_kind(DeviceInfo):
            self.infos[info.device] = info
        unchanged_ns = samples.unchanged_ns("disks")
        for disk in samples.by_kind(DiskSample):
            values = (
                disk.read_ios, disk.read_sectors, disk.read_ms, disk.write_ios, disk.write_sectors, disk.write_ms,
                disk.io_ms, disk.weighted_ms, disk.discard_ios, disk.flush_ios, disk.flush_ms,
            )  # fmt: skip
            self._histories.touch(disk.device).add(samples.at_ns, values, unchanged_ns)
        for limit in samples.by_kind(ThrottleInfo):
            self._record_limit(limit)

    def forget(self, device: str) -> None:
        """Drop a device that was removed."""
        self._histories.pop(device, None)
        self.infos.pop(device, None)

    def _record_limit(self, info: ThrottleInfo) -> None:
        key = (info.device, info.cgroup, info.pid)
        self._throttles.pop(key, None)
        if info.pid is not None:  # the pid may have been reused
            self._ended.pop(info.pid, None)
        if msgspec.structs.replace(info, name=None, pid=None) != ThrottleInfo(*key[:2], None, None, None, None):
            for other in (*[one for one in self._throttles if one[:2] == key[:2]], key):  # one for all in the cgroup
                self._throttles[other] = msgspec.structs.replace(info, pid=other[2])

    def record_exit(self, pid: int, at_ns: int) -> None:
        """Record the exit of a process: a checkpoint of it may still be reported."""
        if any(key[2] == pid for key in self._throttles):
            self._ended[pid] = at_ns

    def forget_before(self, at_ns: int) -> None:
        """Drop limits of processes that exited before a time."""
        for pid in [pid for pid, ended_ns in self._ended.items() if ended_ns < at_ns]:
            del self._ended[pid]
            for key in [key for key in self._throttles if key[2] == pid]:
                del self._throttles[key]

    def measures(
        self, devices: Sequence[str], span: tuple[int, int], users: DeviceUsers, *, writes: bool
    ) -> tuple[DeviceMeasure, ...]:
        """Measure each device in a time; `users`: the processes that used it."""
        found = (self._measure(device, span, users, writes=writes) for device in devices)
        return tuple(measure for measure in found if measure is not None)

    def _measure(self, device: str, span: tuple[int, int], users: DeviceUsers, *, writes: bool) -> DeviceMeasure | None:
        history, info = self._histories[device], self.infos.get(device)
        measured = history.measure(*span)
        if measured is None:
            return None
        start_ns, end_ns, counts = measured
        read_ios, read_sectors, read_ms, write_ios, write_sectors, write_ms, io_ms, weighted_ms, *_ = counts
        *_, discard_ios, flush_ios, flush_ms = history.observed(counts)
        seconds = (end_ns - start_ns) / NS
        column, requests = _WRITES if writes else _READS
        best, best_requests = history.best_rate(column), history.best_rate(column, other_column=requests)
        peak = history.peak_rate((column,), start_ns, end_ns)
        bytes_limit, operations_limit = self._lowest_limits(device, users, writes=writes)
        return DeviceMeasure(
            device=device,
            countable=info.is_countable if info is not None else True,
            transport=info.transport if info is not None else None,
            rotational=info.rotational if info is not None else None,
            seconds=seconds,
            read_bytes=round(read_sectors * SECTOR_BYTES),
            written_bytes=round(write_sectors * SECTOR_BYTES),
            reads=round(read_ios),
            writes=round(write_ios),
            flushes=rounded(flush_ios),
            flush_seconds=None if flush_ms is None else flush_ms / 1000,
            discards=rounded(discard_ios),
            busy_seconds=min(seconds, io_ms / 1000),
            mean_queue=weighted_ms / 1000 / seconds,
            read_wait_seconds=read_ms / 1000 / read_ios if read_ios >= 1 else None,
            write_wait_seconds=write_ms / 1000 / write_ios if write_ios >= 1 else None,
            peak_bytes_per_second=None if peak is None else peak * SECTOR_BYTES,
            shown_bytes_per_second=None if best is None else best * SECTOR_BYTES,
            shown_request_bytes=best * SECTOR_BYTES / best_requests if best and best_requests else None,
            shown_operations_per_second=history.best_rate(requests),
            steadiness=history.steadiness(column, start_ns, end_ns),
            throttled_bytes_per_second=bytes_limit,
            throttled_operations_per_second=operations_limit,
        )

    def measure_share(self, device: str, start_ns: int, end_ns: int, under: str) -> DeviceShare | None:
        """Transfers of a device from the sample before a time to the one after another; None: not observed."""
        pair = self._histories[device].values_around(start_ns, end_ns)
        if pair is None:
            return None
        added = [after - before for before, after in zip(*pair, strict=True)]
        busy, span = added[_Column.IO_MS] / 1000, (end_ns - start_ns) / NS
        return DeviceShare(
            device=device,
            kind="block",
            read_bytes=added[_Column.READ_SECTORS] * SECTOR_BYTES,
            written_bytes=added[_Column.WRITTEN_SECTORS] * SECTOR_BYTES,
            busy_seconds=min(busy, span) if busy <= span * (1 + SIMILAR_SHARE) else None,  # else also outside of it
            under=under,
        )

    def written_bytes(self, device: str, start_ns: int, end_ns: int) -> int | None:
        """Bytes written to a device in a time; None: not sampled."""
        counts = self._histories[device].difference(start_ns, end_ns)
        return None if counts is None else round(counts[_Column.WRITTEN_SECTORS] * SECTOR_BYTES)

    def measure_writes(self, device: str, start_ns: int, end_ns: int) -> DeviceWrites | None:
        """Bytes written and busy time between the samples next to two times; None: not sampled."""
        measured = self._histories[device].measure(start_ns, end_ns)
        if measured is None:
            return None
        since_ns, until_ns, counts = measured
        busy_ns = min(until_ns - since_ns, round(counts[_Column.IO_MS] * NS / MS))
        return DeviceWrites(round(counts[_Column.WRITTEN_SECTORS] * SECTOR_BYTES), busy_ns)

    def _lowest_limits(self, device: str, users: DeviceUsers, *, writes: bool) -> tuple[int | None, int | None]:
        info = self.infos.get(device)
        number = f"{info.major}:{info.minor}" if info is not None else None
        applying = [
            limit
            for limit in self._throttles.values()
            if (limit.name == device or limit.device == number) and _applies_to(limit, users)
        ]
        bytes_limits = [one.write_bytes_per_second if writes else one.read_bytes_per_second for one in applying]
        operation_limits = [
            one.write_operations_per_second if writes else one.read_operations_per_second for one in applying
        ]
        return _lowest(bytes_limits), _lowest(operation_limits)


def _applies_to(limit: ThrottleInfo, users: DeviceUsers) -> bool:
    """Whether a limit applies to one of some processes: set for it, or for its cgroup or one above."""
    above = limit.cgroup.rstrip("/")
    return limit.pid in users.pids or any(f"{cgroup.rstrip('/')}/".startswith(f"{above}/") for cgroup in users.cgroups)


def _lowest(limits: Sequence[int | None]) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)
