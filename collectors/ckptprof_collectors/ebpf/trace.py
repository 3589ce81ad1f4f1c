"""The trace level: every read and write of every process per file, counted by eBPF programs in the kernel."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ckptprof_collectors import heap
from ckptprof_collectors.ebpf.blocks import BlockReader
from ckptprof_collectors.ebpf.files import (
    CLOSED_NS,
    FAILED_NS,
    KEY,
    LAST_NS,
    LIFE,
    PROCESS,
    SESSION,
    SESSION_WORDS,
    Decoder,
    record_of,
)
from ckptprof_collectors.ebpf.hooks import (
    BLOCK,
    ESSENTIAL,
    OBJECTS,
    OPTIONAL,
    SOCKETS,
    Fitting,
    Hooked,
    KernelTypes,
    hook_up,
)
from ckptprof_collectors.ebpf.layouts import Config, Control, Counters, Key, RecordKind
from ckptprof_collectors.ebpf.libbpf import BpfError, Libbpf, Map, Ring, find_libbpf, object_path
from ckptprof_collectors.ebpf.paths import SessionPaths
from ckptprof_collectors.ebpf.sockets import SocketReader
from ckptprof_collectors.kernelfs import KernelFs, UnavailableError
from ckptprof_collectors.samples import DirtyPause, Sample, TraceHealth

_SECOND_NS = 1_000_000_000
_MARGIN_NS = 20_000_000  # a session that was written while the map was read is read again
_RECORDS = 20_000  # of the ring, at most, in one reading
_MAPPINGS_NS = 120 * _SECOND_NS  # faults are counted for so long after the last mapping of a data file
_CROWDED = 0.8  # of the room for sessions
_IDLE_NS = 30 * _SECOND_NS
_FILLING = 0.4  # of the room for sessions: from here on those of threads that have ended go
_MANY = 64  # sessions of one process
_JIFFY_HZ = (100, 250, 300, 1000)  # CONFIG_HZ
_SHARED, _SHARED_CHECKED, _WRITE = 1, 3, 2  # include/uapi/asm-generic/mman-common.h
_OF_FILES = (RecordKind.CREATED, RecordKind.EMPTIED, RecordKind.MAPPED)
_SMALL_BYTES, _SMALL_READ_BYTES = 64 << 10, 1 << 20
_SMALL, _LEAST_SMALL = 400, 20  # told in 100 ms: by all processors together, and by each at least
_SMALL_READS, _LEAST_SMALL_READS = 60, 10  # a data loader opens thousands of files in a second
_FAMILY_READS = 10  # times as many of one family: a restore from many small files is to be whole
_SHED_CALLS = 250_000  # a second and processor: at 0.4 us each a tenth of it
_SHED_NS = 30 * _SECOND_NS
_MAPPED_WRITES = "mapped-writes"
_ZERO = b"\0\0\0\0"
_THREAD, _THREAD_AT = 3, Key.tid.offset // 4  # of a key: in its fields, and in its 32-bit numbers
_COUNTERS = ctypes.sizeof(Counters) // 8
_SUMMED = Counters.window_ns.offset // 8  # the fields before it are sums


class Trace:
    """Reads what the programs counted of every process; after `close`, and our end, nothing stays in the kernel."""

    def __init__(  # noqa: PLR0913 - most of them are for tests and benchmarks
        self,
        fs: KernelFs,
        *,
        family_of: tuple[int, ...] = (),
        ignore: tuple[int, ...] = (),
        objects: Path = OBJECTS,
        max_sessions: int = 8192,
        max_connections: int = 4096,
        ring_bytes: int = 4 << 20,
        small_per_window: int | None = None,
        small_reads_per_window: int | None = None,
        shed_calls: int = _SHED_CALLS,
    ) -> None:
        """Load and attach; raises UnavailableError with the reason.

        `family_of`: trace only what these processes start from now on. `ignore`: processes to leave out, at most 8.
        Of sessions of less than 64 KiB written, or 1 MiB read, each processor tells so many in 100 ms (by default the
        host 400 and 60, but not less than 20 and 10 each), the rest is only counted.
        """
        lib = find_libbpf()
        types = KernelTypes(fs)
        processors = os.cpu_count() or 1
        if small_per_window is None:
            small_per_window = max(_LEAST_SMALL, _SMALL // processors)
        if small_reads_per_window is None:
            allowed = _SMALL_READS * (_FAMILY_READS if family_of else 1)
            small_reads_per_window = max(_LEAST_SMALL_READS, allowed // processors)
        config = Config(
            int(bool(family_of)),
            _SMALL_BYTES,
            small_per_window,
            _SMALL_READ_BYTES,
            small_reads_per_window,
            len(ignore),
        )
        config.ignored[: len(ignore)] = ignore
        fitting = Fitting(bytes(config), {"live": max_sessions, "connections": max_connections, "ring": ring_bytes})
        self._files = hook_up(lib, object_path("trace", objects), types, (ESSENTIAL, OPTIONAL), fitting)
        self._max_sessions = max_sessions
        self._shed_calls = shed_calls
        self._processors = processors
        self._devices: Hooked | None = None
        self._blocks: BlockReader | None = None
        try:
            self._open(lib, family_of)
        except BpfError as error:
            self.close()
            raise UnavailableError(error.summary) from None
        try:
            self._devices = hook_up(lib, object_path("block", objects), types, (BLOCK, ()))
            self._blocks = BlockReader(fs, self._devices.object.map("blocks"))
        except (UnavailableError, BpfError) as error:
            self._files.degraded.append(
                f"not monitored: requests to devices: {error.summary if isinstance(error, BpfError) else error}"
            )
        del types
        heap.give_back()  # of what loading took, the kernel's types alone were 6 MB, libbpf's copy of them more
        self._decoder = Decoder(str(fs.proc), os.sysconf("SC_CLK_TCK"))
        self._proc = fs.proc
        self._paths = SessionPaths()
        self._shed_until_ns = 0
        self._swept_operations = 0
        self._control = self._files.object.section(".data.control")
        self._read_ns = self._swept_ns = self._mapped_ns = 0
        self._operations = -1
        self._pauses: dict[bytes, bytes] = {}
        self._health: TraceHealth | None = None  # as it was told last
        self._sockets = SocketReader(
            self._files.object.map("connections"), self._files.object.map("crowds"), self._decoder.ticks
        )
        self._follow_sockets(wanted=bool(family_of))

    def _follow_sockets(self, *, wanted: bool) -> None:
        for name in SOCKETS:
            if wanted:
                self._files.demand(name)
            else:
                self._files.release(name)

    def _open(self, lib: Libbpf, family_of: tuple[int, ...]) -> None:
        opened = self._files.object
        self._live: Map = opened.map("live")
        self._counters: Map = opened.map("counters")
        self._paused: Map = opened.map("paused")
        self._ring = Ring(lib, opened.map("ring"))
        self._attended_map: Map = opened.map("attended")
        self._trifles: Map = opened.map("trifles")
        self._attended: dict[int, bool] = {}
        family = opened.map("family")
        for process in family_of:
            family.update(process.to_bytes(4, "little"), (2).to_bytes(4, "little"))
        self._clock = [self._read_clock()]

    @property
    def degraded(self) -> tuple[str, ...]:
        """What cannot be seen here, each one sentence."""
        known = self._files.degraded + (self._devices.degraded if self._devices else [])
        if self._shed_until_ns:
            known = [*known, "not monitored for now: sizes and times of calls: there are too many calls"]
        return tuple(known)

    @property
    def programs(self) -> dict[str, str]:
        return self._files.programs | (self._devices.programs if self._devices else {})

    def fileno(self) -> int:
        """Descriptor that is readable when the ring fills up, or a new mapping needs its faults counted."""
        return self._ring.fileno()

    def check(self) -> None:
        """Raise BpfError, which is an OSError, if the maps cannot be read; takes nothing that is to be told."""
        self._counters.lookup(_ZERO)
        self._live.lookup_batch()

    def attend(self, processes: Mapping[int, bool], trifle_bytes: int) -> None:
        """Leave files of which less was read to the sums of the kernel, but for those of these processes.

        Of those that train (True) the children, and theirs, are meant as well. While one does, what these processes
        send and receive over TCP is read, too. Where there is no room for them all files are told of.
        """
        known = self._attended  # what the map holds
        try:
            for process in known.keys() - processes.keys():
                self._attended_map.delete(process.to_bytes(4, "little"))
                del known[process]
            for process, trains in processes.items() - known.items():
                self._attended_map.update(process.to_bytes(4, "little"), (1 + trains).to_bytes(4, "little"))
                known[process] = trains
        except BpfError:
            trifle_bytes = 0
        self._follow_sockets(wanted=any(processes.values()))
        self._set(Control.trifle_bytes, trifle_bytes)

    def trifles(self) -> Mapping[int, int]:
        """Bytes by pid, read since the last call from files that are only summed up; raises BpfError."""
        _, keys, values = self._trifles.lookup_batch()
        for at in range(0, len(keys), 4):
            self._trifles.delete(bytes(keys[at : at + 4]))
        return dict(zip(keys.cast("I"), values.cast("Q"), strict=True))

    def read(self, *, last: bool = False) -> Sequence[Sample]:
        """Sample what changed since the previous call; raises BpfError, which is an OSError.

        `last`: also what is told once a second only, such as the requests of devices.
        """
        now_ns = time.monotonic_ns()
        samples: list[Sample] = []
        self._take_records(now_ns, samples)
        words = memoryview(self._counters.lookup(_ZERO) or bytes(ctypes.sizeof(Counters))).cast("Q")
        counters = [sum(words[at::_COUNTERS].tolist()) for at in range(_SUMMED)]  # over all processors
        sweep = last or now_ns - self._swept_ns >= _SECOND_NS
        calls = counters.pop()
        if last or self._sockets.due(now_ns, calls):
            samples += self._sockets.read(now_ns, calls)
        if counters[0] != self._operations or sweep or self._maps_writes:
            self._operations = counters[0]
            self._take_sessions(now_ns, samples, sweep=sweep)
        if sweep:
            self._shed(now_ns, counters[0])
            self._swept_ns = now_ns
            self._sweep(now_ns, counters, samples)
        return samples

    def _take_records(self, now_ns: int, samples: list[Sample]) -> None:
        for data in self._ring.consume(_RECORDS):
            record = record_of(data)
            path = record.names[0] if record.names else None
            if record.kind == RecordKind.SESSION and record.session is not None:
                path = path or self._paths.of(record.key)
                self._paths.end(record.key, path)
                self._paths.recall(record.process, path)
                samples.append(self._decoder.activity(record.key, record.session, path))
            elif record.kind == RecordKind.SEEN:
                self._paths.know(record.key, path)
            elif record.kind in LIFE:
                if record.kind == RecordKind.MAPPED:
                    self._mapped_ns = now_ns
                    protection, sharing = record.flags & 0xFFFFFFFF, record.flags >> 32 & 0xF
                    if protection & _WRITE and sharing in (_SHARED, _SHARED_CHECKED):
                        self._files.demand(_MAPPED_WRITES)
                if record.kind == RecordKind.CLOSED:
                    path = self._paths.closed(record.key)
                elif record.kind in _OF_FILES and record.of_file:
                    self._paths.know(record.key, path)
                    self._paths.recall(record.process, path)
                samples.append(self._decoder.life(record, self._paths.lately(record.process), path))

    @property
    def _maps_writes(self) -> bool:
        return _MAPPED_WRITES in self._files.links

    def _take_sessions(self, now_ns: int, samples: list[Sample], *, sweep: bool) -> None:
        count, keys, values = self._live.lookup_batch()
        since_ns, self._read_ns = self._read_ns - _MARGIN_NS, now_ns
        words = values.cast("Q")
        lasts = words[LAST_NS::SESSION_WORDS].tolist()
        closed = words[CLOSED_NS::SESSION_WORDS].tolist()
        failed = words[FAILED_NS::SESSION_WORDS].tolist()
        gone = self._gone(values.cast("I")[PROCESS :: SESSION_WORDS * 2].tolist()) if sweep and count else frozenset()
        crowded = count > _CROWDED * self._max_sessions
        ended = self._ended(keys, values) if count > _FILLING * self._max_sessions else frozenset()
        for at in range(count):
            last_ns, active_ns = lasts[at], max(lasts[at], failed[at])
            stale = crowded and now_ns - last_ns > _IDLE_NS
            if active_ns < since_ns and not (closed[at] or stale or gone or ended):
                continue
            key = bytes(keys[at * KEY.size : (at + 1) * KEY.size])
            value = values[at * SESSION.size : (at + 1) * SESSION.size]
            over = bool(closed[at]) or stale or int.from_bytes(value[PROCESS * 4 : PROCESS * 4 + 4], "little") in gone
            over = over or KEY.unpack(key)[_THREAD] in ended
            if not over and active_ns < since_ns:
                continue
            path = self._paths.of(key)
            if over:
                self._live.delete(key)
                self._paths.end(key)
            samples.append(self._decoder.activity(key, value, path, closed_ns=last_ns if over else None))

    def _gone(self, processes: list[int]) -> frozenset[int]:
        """Find the processes that have ended: the files that they left open are not reported again."""
        return frozenset(process for process in set(processes) if not (self._proc / str(process)).exists())

    def _ended(self, keys: memoryview, values: memoryview) -> frozenset[int]:
        """Find the ended threads of processes with very many: nothing closes their sessions."""
        threads: dict[int, list[int]] = {}
        processes = values.cast("I")[PROCESS :: SESSION_WORDS * 2].tolist()
        for process, thread in zip(processes, keys.cast("I")[_THREAD_AT :: KEY.size // 4].tolist(), strict=True):
            threads.setdefault(process, []).append(thread)
        found: set[int] = set()
        for process, known in threads.items():
            if len(known) > _MANY:
                living = self._proc / str(process) / "task"
                found.update(set(known) - {int(name) for name in (os.listdir(living) if living.exists() else ())})
        return frozenset(found)

    def _shed(self, now_ns: int, operations: int) -> None:
        """Leave out what costs while so many calls are made that it would be felt."""
        made, self._swept_operations = operations - self._swept_operations, operations
        elapsed_ns = now_ns - self._swept_ns if self._swept_ns else _SECOND_NS
        if made * _SECOND_NS // elapsed_ns > self._shed_calls * self._processors:
            self._shed_until_ns = now_ns + _SHED_NS
        elif now_ns > self._shed_until_ns:
            self._shed_until_ns = 0
        self._set(Control.shed, int(self._shed_until_ns > 0))

    def _set(self, member: Any, value: int) -> None:
        self._control[member.offset : member.offset + member.size] = value.to_bytes(member.size, "little")

    def _sweep(self, now_ns: int, counters: list[int], samples: list[Sample]) -> None:
        if self._maps_writes and now_ns - self._mapped_ns > _MAPPINGS_NS:
            self._set(Control.dirty_seen, 0)
            self._files.release(_MAPPED_WRITES)
        if self._blocks is not None:
            samples.extend(self._blocks.read())
        samples.extend(self._read_pauses())
        calls, untimed, lost_operations, lost_bytes, lost_sessions, lost_events = counters
        health = TraceHealth(
            calls=calls,
            lost_operations=lost_operations,
            lost_bytes=lost_bytes,
            lost_sessions=lost_sessions,
            lost_events=lost_events,
            untimed_operations=untimed,
            programs=self.programs,
            degraded=self.degraded,
        )
        if health != self._health:
            self._health = health
            samples.append(health)

    def _read_pauses(self) -> list[Sample]:
        count, keys, values = self._paused.lookup_batch()
        found: list[Sample] = []
        size = self._paused.value_size
        for at in range(count):
            key, value = bytes(keys[at * 4 : at * 4 + 4]), bytes(values[at * size : (at + 1) * size])
            if self._pauses.get(key) == value:
                if count > self._paused.max_entries // 2 and self._gone([int.from_bytes(key, "little")]):
                    self._paused.delete(key)
                    self._pauses.pop(key, None)
                continue
            self._pauses[key] = value
            start_ns, pauses, jiffies = (int.from_bytes(value[i : i + 8], "little") for i in (0, 8, 16))
            paused_ns = jiffies * _SECOND_NS // self._hz()
            pid = int.from_bytes(key, "little")
            found.append(DirtyPause(pid, self._decoder.ticks(start_ns), pauses, paused_ns))
        return found

    def _read_clock(self) -> tuple[int, int]:
        self._files.object.run_once("read_clock")
        every = [Counters.from_buffer_copy(value) for value in self._counters.lookup_percpu(_ZERO)]
        latest = max(every, key=lambda counters: counters.jiffies_ns)
        return latest.jiffies, latest.jiffies_ns

    def _hz(self) -> int:
        """Jiffies per second: the configurable number that is nearest to the measured one."""
        if len(self._clock) < 2:
            self._clock.append(self._read_clock())
        (jiffies, at_ns), (later_jiffies, later_ns) = self._clock
        measured = (later_jiffies - jiffies) * _SECOND_NS / max(1, later_ns - at_ns)
        return min(_JIFFY_HZ, key=lambda hz: abs(hz - measured))

    def close(self) -> None:
        control = getattr(self, "_control", None)
        if control is not None:
            control.release()  # else the section stays mapped
        ring = getattr(self, "_ring", None)
        if ring is not None:
            ring.close()
        self._files.close()
        if self._devices is not None:
            self._devices.close()
