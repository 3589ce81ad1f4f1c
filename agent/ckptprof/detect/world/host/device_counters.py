"""What the block devices under a checkpoint did while it ran, and what they were ever seen to be able to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ckptprof.detect.world.bounded import Bounded
from ckptprof.detect.world.counter_history import SECOND_NS
from ckptprof.detect.world.counter_rates import CounterRates
from ckptprof.measures import DeviceMeasure
from ckptprof_collectors.samples import DeviceInfo, DiskSample, Gone, Sample, ThrottleInfo

SECTOR_BYTES = 512
MAX_DEVICES = 512  # 0.2 MB each at most
MAX_THROTTLES = 1024  # limits, one for each process and device
(
    _READS, _READ_SECTORS, _READ_MS, _WRITES, _WRITTEN_SECTORS, _WRITE_MS, _IO_MS, _WEIGHTED_MS, _DISCARDS, _FLUSHES,
    _WIDTH,
) = range(11)  # fmt: skip
_RATED = (_READS, _READ_SECTORS, _WRITES, _WRITTEN_SECTORS)
_WRAPS = (_READ_MS, _WRITE_MS, _IO_MS, _WEIGHTED_MS)
_BOTH = (_READ_SECTORS, _WRITTEN_SECTORS)


class Users(NamedTuple):
    """The processes that used a device."""

    pids: frozenset[int]
    cgroups: frozenset[str]


class Moved(NamedTuple):
    """What a device moved in a time, whole looks of it."""

    read_bytes: int
    written_bytes: int
    busy_seconds: float


class DeviceCounters:
    """The counters of block devices, and the limits that are set on them."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._meters: Bounded[str, CounterRates] = Bounded(MAX_DEVICES)
        self.infos: dict[str, DeviceInfo] = {}
        self._tells: dict[str, tuple[bool, bool]] = {}  # whether the kernel counts discards and flushes
        # by device number, cgroup and process
        self._throttles: Bounded[tuple[str, str, int | None], ThrottleInfo] = Bounded(MAX_THROTTLES)
        self._ended: Bounded[int, int] = Bounded(MAX_THROTTLES)

    def observe(self, at_ns: int, unchanged_ns: int, sample: Sample) -> None:
        """Take one sample; up to `unchanged_ns` nothing had changed since the one before."""
        if isinstance(sample, DiskSample):
            self._count(at_ns, unchanged_ns, sample)
        elif isinstance(sample, DeviceInfo):
            self.infos[sample.device] = sample
        elif isinstance(sample, ThrottleInfo):
            self._limit(sample)
        elif isinstance(sample, Gone) and sample.entity == "device":
            self._meters.pop(sample.name, None)
            self.infos.pop(sample.name, None)

    def _count(self, at_ns: int, unchanged_ns: int, sample: DiskSample) -> None:
        self._tells[sample.device] = sample.discard_ios is not None, sample.flush_ios is not None
        values = (
            sample.read_ios, sample.read_sectors, sample.read_ms, sample.write_ios, sample.write_sectors,
            sample.write_ms, sample.io_ms, sample.weighted_ms, sample.discard_ios or 0, sample.flush_ios or 0,
        )  # fmt: skip
        self._meters.update_of(sample.device, _new).add(at_ns, values, unchanged_ns)

    def _limit(self, info: ThrottleInfo) -> None:
        key = (info.device, info.cgroup, info.pid)
        self._throttles.pop(key, None)
        limits = (
            info.read_bytes_per_second, info.write_bytes_per_second, info.read_operations_per_second,
            info.write_operations_per_second,
        )  # fmt: skip
        if info.pid is not None and info.pid in self._ended:  # its number is another's
            del self._ended[info.pid]
        if any(limit is not None for limit in limits):
            self._throttles[key] = info

    def end(self, pid: int, at_ns: int) -> None:
        """Take note that a process has ended: what it did last may be asked for yet."""
        if any(key[2] == pid for key in self._throttles):
            self._ended[pid] = at_ns

    def forget_before(self, at_ns: int) -> None:
        """Drop what was told for processes that ended before."""
        for pid in [pid for pid, ended_ns in self._ended.items() if ended_ns < at_ns]:
            del self._ended[pid]
            for key in [key for key in self._throttles if key[2] == pid]:
                del self._throttles[key]

    def measures(
        self, devices: Sequence[str], span: tuple[int, int], users: Users, *, writes: bool
    ) -> tuple[DeviceMeasure, ...]:
        """Return what each of these devices did in a time; `users`: the processes that used them."""
        found = (self._measure(device, span, users, writes=writes) for device in devices)
        return tuple(measure for measure in found if measure is not None)

    def _measure(self, device: str, span: tuple[int, int], users: Users, *, writes: bool) -> DeviceMeasure | None:
        meter, info = self._meters.get(device), self.infos.get(device)
        seen = meter.seen(*span) if meter is not None and span[1] > span[0] else None
        start_ns, end_ns = seen or span
        counts = meter.difference(start_ns, end_ns) if meter is not None and seen is not None else None
        if meter is None or counts is None:
            return None
        seconds = (end_ns - start_ns) / SECOND_NS
        discards, flushes = self._tells[device]
        column = _WRITTEN_SECTORS if writes else _READ_SECTORS
        shown = meter.ceilings[column].best()
        peak = meter.peak(_BOTH, start_ns, end_ns)
        bytes_limit, operations_limit = self._limits(device, users, writes=writes)
        return DeviceMeasure(
            device=device,
            countable=info.countable if info is not None else True,
            transport=info.transport if info is not None else None,
            rotational=info.rotational if info is not None else None,
            seconds=seconds,
            read_bytes=round(counts[_READ_SECTORS] * SECTOR_BYTES),
            written_bytes=round(counts[_WRITTEN_SECTORS] * SECTOR_BYTES),
            reads=round(counts[_READS]),
            writes=round(counts[_WRITES]),
            flushes=round(counts[_FLUSHES]) if flushes else None,
            discards=round(counts[_DISCARDS]) if discards else None,
            busy_seconds=min(seconds, counts[_IO_MS] / 1000),
            mean_queue=counts[_WEIGHTED_MS] / 1000 / seconds,
            read_wait_seconds=counts[_READ_MS] / 1000 / counts[_READS] if counts[_READS] >= 1 else None,
            write_wait_seconds=counts[_WRITE_MS] / 1000 / counts[_WRITES] if counts[_WRITES] >= 1 else None,
            peak_bytes_per_second=None if peak is None else peak * SECTOR_BYTES,
            shown_bytes_per_second=None if shown is None else shown * SECTOR_BYTES,
            shown_operations_per_second=meter.ceilings[_WRITES if writes else _READS].best(),
            steadiness=meter.steadiness((column,), start_ns, end_ns),
            throttled_bytes_per_second=bytes_limit,
            throttled_operations_per_second=operations_limit,
        )

    def around(self, device: str, start_ns: int, end_ns: int) -> Moved | None:
        """Return what a device moved from the look before a time to the look after another; None: it was not seen."""
        meter = self._meters.get(device)
        pair = meter.around(start_ns, end_ns) if meter is not None else None
        if pair is None:
            return None
        before, after = pair
        return Moved(
            read_bytes=(after[_READ_SECTORS] - before[_READ_SECTORS]) * SECTOR_BYTES,
            written_bytes=(after[_WRITTEN_SECTORS] - before[_WRITTEN_SECTORS]) * SECTOR_BYTES,
            busy_seconds=(after[_IO_MS] - before[_IO_MS]) / 1000,
        )

    def written_bytes(self, device: str, start_ns: int, end_ns: int) -> int | None:
        """Return what was written to a device in a time; None: it was not looked at."""
        meter = self._meters.get(device)
        counts = meter.difference(start_ns, end_ns) if meter is not None else None
        return None if counts is None else round(counts[_WRITTEN_SECTORS] * SECTOR_BYTES)

    def _limits(self, device: str, users: Users, *, writes: bool) -> tuple[int | None, int | None]:
        """Return the lowest limits that hold one of some processes on a device: bytes and operations per second."""
        info = self.infos.get(device)
        number = f"{info.major}:{info.minor}" if info is not None else None
        told = [
            limit
            for limit in self._throttles.values()
            if (limit.name == device or limit.device == number) and _holds(limit, users)
        ]
        moved = [one.write_bytes_per_second if writes else one.read_bytes_per_second for one in told]
        done = [one.write_operations_per_second if writes else one.read_operations_per_second for one in told]
        return _lowest(moved), _lowest(done)


def _new() -> CounterRates:
    return CounterRates(_WIDTH, _RATED, wraps=_WRAPS)


def _holds(limit: ThrottleInfo, users: Users) -> bool:
    """Return whether a limit holds one of some processes: it was told for it, or its cgroup is the same or above."""
    above = limit.cgroup.rstrip("/")
    return limit.pid in users.pids or any(f"{cgroup.rstrip('/')}/".startswith(f"{above}/") for cgroup in users.cgroups)


def _lowest(limits: Sequence[int | None]) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)
