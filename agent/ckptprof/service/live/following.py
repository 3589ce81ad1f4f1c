"""Reads the state for `ckptprof live`: checkpoints from the database, device rates from the kernel's counters."""

from __future__ import annotations

import contextlib
import fnmatch
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from ckptprof import units
from ckptprof.model import Checkpoint, CheckpointQuery
from ckptprof.report.live.state import MAX_LAST, Device, State, underway, with_usual_bytes
from ckptprof.service.recorder.diagnosing import Diagnosis, ceilings_of_database
from ckptprof.service.recorder.pending import unfinished_checkpoints
from ckptprof.store.recorded_time import running_session
from ckptprof_collectors.collector import Collector
from ckptprof_collectors.counters import LOOPBACK, TRANSFER_FIELDS
from ckptprof_collectors.devices.block_devices import BlockDevices
from ckptprof_collectors.kernelfs import KernelFs, UnavailableError, read_text
from ckptprof_collectors.networks.nics import NicReader
from ckptprof_collectors.networks.rdma import RdmaPorts
from ckptprof_collectors.samples import DeviceInfo, DiskSample, EntityGone, NicInfo, NicSample, RdmaSample, Sample

if TYPE_CHECKING:
    from ckptprof.store.reader import StoreReader

_COLLECTOR_TYPES: tuple[Callable[[KernelFs], Collector], ...] = (BlockDevices, NicReader, RdmaPorts)
_HIDDEN_KINDS = frozenset({"partition", "ram"})  # the disk counts their bytes, or they are no storage
_MIN_INTERVAL_NS = 200_000_000  # between two readings: a shorter rate is noise
_ENTITIES = {one.counted.gone_entity: one.counted.entity for one in (DiskSample, NicSample, RdmaSample)}
_Key = tuple[str, str]  # kind and name
_Counts = tuple[int | None, int | None, int | None]  # read and written bytes, milliseconds busy
STOPPED = "no recorder is running for this database"


class DeviceRates:
    """Rates between two readings; none for a device read once, or whose counters were reset."""

    def __init__(self, fs: KernelFs | None = None, clock: Callable[[], int] = time.time_ns) -> None:
        """`clock` returns epoch nanoseconds."""
        fs = KernelFs() if fs is None else fs
        self.boot_id = read_text(fs.proc / "sys/kernel/random/boot_id")
        self._clock = clock
        self._collectors: list[Collector] = []
        for make in _COLLECTOR_TYPES:
            with contextlib.suppress(UnavailableError):
                self._collectors.append(make(fs))
        self._counts: dict[_Key, _Counts] = {}
        self._hidden: set[_Key] = set()
        self._rates: tuple[Device, ...] = ()
        self._read_ns = 0
        self.read()

    def close(self) -> None:
        """Close the counters' files."""
        for collector in self._collectors:
            collector.close()

    def read(self) -> tuple[Device, ...]:
        """Return the rates since the previous reading; the previous rates if that was less than 0.2 s ago."""
        now_ns = self._clock()
        if 0 <= now_ns - self._read_ns < _MIN_INTERVAL_NS:
            return self._rates
        before, seconds = dict(self._counts), (now_ns - self._read_ns) / 1e9
        for collector in self._collectors:
            with contextlib.suppress(OSError):
                self._update(collector.read() or ())
        self._rates = tuple(
            _device(key, before.get(key), counts, seconds, now_ns)
            for key, counts in self._counts.items()
            if key not in self._hidden
        )
        self._read_ns = now_ns
        return self._rates

    def _update(self, samples: Sequence[Sample]) -> None:
        for sample in samples:
            if isinstance(sample, DiskSample | NicSample | RdmaSample):
                self._count(sample)
            elif isinstance(sample, DeviceInfo):
                is_hidden = sample.kind in _HIDDEN_KINDS or not sample.is_countable
                self._set_hidden(("disk", sample.device), is_hidden=is_hidden)
            elif isinstance(sample, NicInfo):
                self._set_hidden(("nic", sample.interface), is_hidden=not sample.is_countable)
            elif isinstance(sample, EntityGone) and sample.entity in _ENTITIES:
                key = _ENTITIES[sample.entity], sample.name
                self._counts.pop(key, None)
                self._hidden.discard(key)

    def _count(self, sample: DiskSample | NicSample | RdmaSample) -> None:
        kind, (name_field,) = sample.counted.entity, sample.counted.name
        name, fields = getattr(sample, name_field), TRANSFER_FIELDS[kind]
        if f"{kind}:{name}" == LOOPBACK:
            return
        read, written = (
            None if count is None else count * fields.unit_bytes
            for count in (getattr(sample, fields.inbound), getattr(sample, fields.outbound))
        )
        busy_ms = None if fields.busy_ms is None else getattr(sample, fields.busy_ms)
        self._counts[kind, name] = read, written, busy_ms

    def _set_hidden(self, key: _Key, *, is_hidden: bool) -> None:
        (self._hidden.add if is_hidden else self._hidden.discard)(key)


def _device(key: _Key, before: _Counts | None, now: _Counts, seconds: float, now_ns: int) -> Device:
    read, written, busy_ms = (
        (new - old) / seconds if old is not None and new is not None and new >= old else None
        for old, new in zip(before if before is not None else (None, None, None), now, strict=True)
    )
    return Device(
        name=key[1], kind=key[0], read_bytes_per_second=read, written_bytes_per_second=written,
        busy_share=None if busy_ms is None else min(busy_ms / 1000, 1.0), at_ns=now_ns,
    )  # fmt: skip


class LiveReader:
    """Reads the state for the live view from a database, again and again."""

    def __init__(self, reader: StoreReader, devices: DeviceRates, *, job: str | None = None) -> None:
        """`job` is a name or a shell pattern; None: all of them."""
        self._reader = reader
        self._devices = devices
        self._job = job

    def state(self, now_ns: int) -> State:
        """Return the current state; raises StoreError."""
        self._reader.reopen_if_newer()
        sessions = self._reader.sessions()
        session = running_session(sessions, now_ns)
        last = self._latest_checkpoints()
        if session is None:
            host = sessions[-1].host if sessions else None
            age = f": this is its state of {units.duration(now_ns - sessions[-1].end_ns)} ago" if sessions else ""
            return State(at_ns=now_ns, host=host, level=None, since_ns=None, notes=(STOPPED + age,), last=last)
        found = [one for one in unfinished_checkpoints(self._reader.pending().values()) if self._is_selected(one)]
        if found:
            found = self._diagnosis.diagnose_unfinished(found, last)
        return State(
            at_ns=now_ns,
            host=session.host,
            level=session.level,
            since_ns=session.start_ns,
            dropped_frames=session.dropped_frames,
            underway=with_usual_bytes([underway(one) for one in found], last),
            devices=self._devices.read() if session.boot_id == self._devices.boot_id else (),
            last=last,
        )

    def checkpoint(self, one: Checkpoint) -> Checkpoint | None:
        """Return a checkpoint with all details; None if it was deleted since. Raises StoreError."""
        return self._reader.checkpoint(one.id)

    def _latest_checkpoints(self) -> tuple[Checkpoint, ...]:
        found = self._reader.report(CheckpointQuery(job=self._job, limit=MAX_LAST)).checkpoints
        return tuple(sorted(found, key=lambda one: (one.start_ns, one.id), reverse=True))

    def _is_selected(self, one: Checkpoint) -> bool:
        return self._job is None or fnmatch.fnmatchcase(one.job, self._job)

    @cached_property
    def _diagnosis(self) -> Diagnosis:
        return Diagnosis(ceilings=ceilings_of_database(self._reader.path))
