"""What goes on now, for who watches it by `ckptprof live`: made of the recorder's last state, only while one does."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

from ckptprof.export.health import RecorderHealth
from ckptprof.model import Checkpoint, Session
from ckptprof.report.live.state import Device, Recorder, State, underway
from ckptprof_collectors.counted import LOOPBACK, MOVED, Moved
from ckptprof_collectors.samples import DeviceInfo, DiskSample, Frame, Gone, NicInfo, NicSample, RdmaSample

_HIDDEN_KINDS = frozenset({"partition", "ram"})  # their bytes are the disk's, or no storage's
_MOVERS = (DiskSample, NicSample, RdmaSample)
_GONE = {one.counted.gone: one.counted.entity for one in _MOVERS}
_Counts = tuple["int | None", "int | None", "int | None"]  # read and written bytes, milliseconds of being busy


class Audience(Protocol):
    """Who is told."""

    @property
    def is_wanted(self) -> bool:
        """Whether anybody listens."""

    def put(self, state: State) -> None:
        """Tell it; returns at once."""


class Live:
    """Keeps the newest counters of devices, and tells a state to an audience."""

    def __init__(self, audience: Audience) -> None:
        """Tell this one."""
        self._audience = audience
        self._counts: dict[tuple[str, str], _Counts] = {}
        self._before: dict[tuple[str, str], _Counts] = {}
        self._hidden: set[tuple[str, str]] = set()  # whose bytes others count, too
        self._read_ns = self._before_ns = 0  # epoch nanoseconds of the counters
        self._cpu_before: tuple[float, float] | None = None  # seconds of the processor, and of CLOCK_MONOTONIC

    @property
    def is_wanted(self) -> bool:
        """Whether anybody looks."""
        return self._audience.is_wanted

    def feed(self, frame: Frame) -> None:
        """Take the counters of a frame, which has only those that changed."""
        self._read_ns = frame.wall_ns
        for sample in frame.samples:
            take = _TAKES.get(type(sample))
            if take is not None:
                take(self, sample)

    def tell(
        self, session: Session, health: RecorderHealth, going_on: Sequence[Checkpoint], writing: frozenset[int]
    ) -> None:
        """Tell what goes on, if anybody looks; `writing`: the processes that have a file of theirs open for it."""
        if self._audience.is_wanted:
            found = sorted(going_on, key=lambda one: one.start_ns)
            self._audience.put(
                State(
                    at_ns=time.time_ns(),
                    host=session.host,
                    level=session.level,
                    since_ns=session.start_ns,
                    source="agent",
                    underway=tuple(underway(one, writing) for one in found),
                    devices=self._devices(),
                    recorder=self._recorder(health),
                )
            )
        self._before, self._before_ns = dict(self._counts), self._read_ns
        self._cpu_before = None if health.cpu_seconds is None else (health.cpu_seconds, time.monotonic())

    def _devices(self) -> tuple[Device, ...]:
        seconds = (self._read_ns - self._before_ns) / 1e9 if self._before_ns else 0.0
        return tuple(
            Device(
                kind=kind, name=name, read_bytes_per_second=read, written_bytes_per_second=written,
                busy_share=None if busy is None else min(busy / 1000, 1.0), at_ns=self._read_ns,
            )
            for (kind, name), now in self._counts.items() if (kind, name) not in self._hidden
            for read, written, busy in [_rates(self._before.get((kind, name)), now, seconds)]
        )  # fmt: skip

    def _recorder(self, health: RecorderHealth) -> Recorder:
        share = None
        if self._cpu_before is not None and health.cpu_seconds is not None:
            cpu_seconds, at = self._cpu_before
            spent = time.monotonic() - at
            share = max(0.0, health.cpu_seconds - cpu_seconds) / spent if spent > 0 else None
        return Recorder(
            cpu_share=share,
            resident_bytes=health.resident_bytes,
            late_frames=health.late_frames or 0,
            dropped_frames=health.dropped_frames or 0,
            store_bytes=health.store_bytes,
            store_queue=health.store_queue,
        )

    def _counted(self, sample: DiskSample | NicSample | RdmaSample) -> None:
        kind, (field,) = sample.counted.entity, sample.counted.name
        name, moved = getattr(sample, field), MOVED[kind]
        if f"{kind}:{name}" != LOOPBACK:
            read, written = getattr(sample, moved.into), getattr(sample, moved.out_of)
            busy = getattr(sample, moved.busy_ms) if moved.busy_ms is not None else None
            self._counts[kind, name] = _bytes(read, moved), _bytes(written, moved), busy

    def _device_info(self, info: DeviceInfo) -> None:
        self._hide(("disk", info.device), is_hidden=info.kind in _HIDDEN_KINDS or not info.countable)

    def _nic_info(self, info: NicInfo) -> None:
        self._hide(("nic", info.interface), is_hidden=not info.countable)

    def _hide(self, key: tuple[str, str], *, is_hidden: bool) -> None:
        (self._hidden.add if is_hidden else self._hidden.discard)(key)

    def _gone(self, gone: Gone) -> None:
        kind = _GONE.get(gone.entity)
        if kind is not None:
            self._counts.pop((kind, gone.name), None)
            self._hidden.discard((kind, gone.name))


_TAKES: dict[type, Any] = {
    **dict.fromkeys(_MOVERS, Live._counted),  # noqa: SLF001 - its own
    DeviceInfo: Live._device_info,  # noqa: SLF001
    NicInfo: Live._nic_info,  # noqa: SLF001
    Gone: Live._gone,  # noqa: SLF001
}


def _bytes(count: int | None, moved: Moved) -> int | None:
    return None if count is None else count * moved.unit_bytes


def _rates(before: _Counts | None, now: _Counts, seconds: float) -> tuple[float | None, float | None, float | None]:
    """Return by how much each counter rose in a second; None if it went back or was not read."""
    if before is None or seconds <= 0:
        return None, None, None
    read, written, busy = (
        (new - old) / seconds if old is not None and new is not None and new >= old else None
        for old, new in zip(before, now, strict=True)
    )
    return read, written, busy
