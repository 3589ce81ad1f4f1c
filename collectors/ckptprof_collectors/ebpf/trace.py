"""The trace level: every read and write of every process per file, counted by eBPF programs in the kernel."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ckptprof_collectors import heap
from ckptprof_collectors.ebpf.block_requests import BlockReader
from ckptprof_collectors.ebpf.file_records import (
    CLOSED_NS_WORD,
    FAILED_NS_WORD,
    KEY,
    LAST_NS_WORD,
    LIFE_KINDS,
    PROCESS_WORD,
    SESSION,
    SESSION_WORDS,
    SampleDecoder,
    parse_record,
)
from ckptprof_collectors.ebpf.hooks import (
    BLOCK_HOOKS,
    ESSENTIAL_HOOKS,
    OBJECTS,
    OPTIONAL_HOOKS,
    SOCKET_HOOKS,
    AttachedObject,
    KernelTypes,
    LoadSettings,
    load_and_attach,
)
from ckptprof_collectors.ebpf.layouts import ProgramConfig, ProgramControl, ProgramCounters, RecordKind, SessionKey
from ckptprof_collectors.ebpf.libbpf import BpfError, BpfMap, Libbpf, RingReader, find_libbpf, object_path
from ckptprof_collectors.ebpf.session_paths import SessionPaths
from ckptprof_collectors.ebpf.socket_traffic import SocketReader
from ckptprof_collectors.kernelfs import KernelFs, UnavailableError
from ckptprof_collectors.samples import DirtyPause, Sample, TraceHealth

_SECOND_NS = 1_000_000_000
_MARGIN_NS = 20_000_000  # sessions updated during the last read of the map are read again
_MAX_RECORDS = 20_000  # of the ring, in one read
_FAULT_COUNTING_NS = 120 * _SECOND_NS  # faults are counted for so long after the last mapping of a data file
_CROWDED_SHARE = 0.8  # of the map of sessions
_IDLE_NS = 30 * _SECOND_NS
_FILLING_SHARE = 0.4  # of the map of sessions: above it those of ended threads are removed
_MANY_SESSIONS = 64  # sessions of one process
_JIFFY_HZ = (100, 250, 300, 1000)  # CONFIG_HZ
_SHARED, _SHARED_CHECKED, _WRITE = 1, 3, 2  # include/uapi/asm-generic/mman-common.h
_FILE_KINDS = (RecordKind.CREATED, RecordKind.EMPTIED, RecordKind.MAPPED)
_SMALL_BYTES, _SMALL_READ_BYTES = 64 << 10, 1 << 20
_SMALL_WRITES, _MIN_SMALL_WRITES = 400, 20  # reported in 100 ms: by all processors together, and at least by each
_SMALL_READS, _MIN_SMALL_READS = 60, 10  # a data loader opens thousands of files in a second
_FAMILY_READS_FACTOR = 10  # times as many for an attached job: to report a restore from many small files completely
_SHED_CALLS = 250_000  # a second and processor: at 0.4 us each a tenth of it
_SHED_NS = 30 * _SECOND_NS
_MAPPED_WRITES = "mapped-writes"
_ZERO = b"\0\0\0\0"
_TRAINS = 3  # bpf/trace.h: ATTENDED_TRAINS
_THREAD, _THREAD_AT = 3, SessionKey.tid.offset // 4  # of a key: in its fields, and in its 32-bit numbers
_COUNTERS = ctypes.sizeof(ProgramCounters) // 8
_SUMMED = ProgramCounters.window_ns.offset // 8  # the fields before it are sums


class EbpfTrace:
    """Reads the programs' counters of every process; after `close`, or our end, nothing stays in the kernel."""

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
        Sessions with less than 64 KiB written, or 1 MiB read, are limited: each processor reports so many in 100 ms (by
        default the host 400 and 60, but not less than 20 and 10 each), the rest is only counted.
        """
        lib = find_libbpf()
        types = KernelTypes(fs)
        processors = os.cpu_count() or 1
        if small_per_window is None:
            small_per_window = max(_MIN_SMALL_WRITES, _SMALL_WRITES // processors)
        if small_reads_per_window is None:
            allowed = _SMALL_READS * (_FAMILY_READS_FACTOR if family_of else 1)
            small_reads_per_window = max(_MIN_SMALL_READS, allowed // processors)
        config = ProgramConfig(
            int(bool(family_of)),
            _SMALL_BYTES,
            small_per_window,
            _SMALL_READ_BYTES,
            small_reads_per_window,
            len(ignore),
        )
        config.ignored[: len(ignore)] = ignore
        fitting = LoadSettings(
            bytes(config), {"live": max_sessions, "connections": max_connections, "ring": ring_bytes}
        )
        self._files = load_and_attach(
            lib, object_path("trace", objects), types, (ESSENTIAL_HOOKS, OPTIONAL_HOOKS), fitting
        )
        self._max_sessions = max_sessions
        self._shed_calls = shed_calls
        self._processors = processors
        self._devices: AttachedObject | None = None
        self._blocks: BlockReader | None = None
        try:
            self._open(lib, family_of)
        except BpfError as error:
            self.close()
            raise UnavailableError(error.summary) from None
        try:
            self._devices = load_and_attach(lib, object_path("block", objects), types, (BLOCK_HOOKS, ()))
            self._blocks = BlockReader(fs, self._devices.object.map("blocks"))
        except (UnavailableError, BpfError) as error:
            self._files.degraded.append(
                f"not monitored: requests to devices: {error.summary if isinstance(error, BpfError) else error}"
            )
        del types
        heap.release_free()  # memory of the load: 6 MB for the kernel's types, more for libbpf's copy of them
        self._decoder = SampleDecoder(str(fs.proc), os.sysconf("SC_CLK_TCK"))
        self._proc = fs.proc
        self._paths = SessionPaths()
        self._shed_until_ns = 0
        self._swept_operations = 0
        self._control = self._files.object.section(".data.control")
        self._read_ns = self._swept_ns = self._mapped_ns = 0
        self._operations = -1
        self._pauses: dict[bytes, bytes] = {}
        self._health: TraceHealth | None = None  # as last reported
        self._sockets = SocketReader(
            self._files.object.map("connections"), self._files.object.map("crowds"), self._decoder.ticks
        )
        self._attach_sockets(enabled=bool(family_of))

    def _attach_sockets(self, *, enabled: bool) -> None:
        for name in SOCKET_HOOKS:
            if enabled:
                self._files.attach_on_demand(name)
            else:
                self._files.release(name)

    def _open(self, lib: Libbpf, family_of: tuple[int, ...]) -> None:
        opened = self._files.object
        self._live: BpfMap = opened.map("live")
        self._counters: BpfMap = opened.map("counters")
        self._paused: BpfMap = opened.map("paused")
        self._ring = RingReader(lib, opened.map("ring"))
        self._attended_map: BpfMap = opened.map("attended")
        self._trifles: BpfMap = opened.map("trifles")
        self._attended: dict[int, int] = {}
        family = opened.map("family")
        for process in family_of:
            family.update(process.to_bytes(4, "little"), (2).to_bytes(4, "little"))
        self._clock = [self._read_clock()]

    @property
    def degraded(self) -> tuple[str, ...]:
        """What the trace cannot observe here, each one sentence."""
        limitations = self._files.degraded + (self._devices.degraded if self._devices else [])
        if self._shed_until_ns:
            limitations = [*limitations, "not monitored for now: sizes and times of calls: there are too many calls"]
        return tuple(limitations)

    @property
    def programs(self) -> dict[str, str]:
        return self._files.programs | (self._devices.programs if self._devices else {})

    def fileno(self) -> int:
        """Descriptor that is readable when the ring fills up, or a new mapping needs its faults counted."""
        return self._ring.fileno()

    def check(self) -> None:
        """Raise BpfError, which is an OSError, if the maps cannot be read; consumes no samples."""
        self._counters.lookup(_ZERO)
        self._live.lookup_batch()

    def set_attended(self, processes: Mapping[int, int], trifle_bytes: int) -> None:
        """Report transfers below `trifle_bytes` of a file only for processes with 2 or 3; of others they are summed up.

        For those that train (3) all descendants are included, and while there is one, the TCP traffic of all these
        processes is read, too. If the map has no space for the processes, all files are reported.
        """
        attended = self._attended  # what the map holds
        try:
            for process in attended.keys() - processes.keys():
                self._attended_map.delete(process.to_bytes(4, "little"))
                del attended[process]
            for process, attention in processes.items() - attended.items():
                self._attended_map.update(process.to_bytes(4, "little"), attention.to_bytes(4, "little"))
                attended[process] = attention
        except BpfError:
            trifle_bytes = 0
        self._attach_sockets(enabled=_TRAINS in processes.values())
        self._set_control(ProgramControl.trifle_bytes, trifle_bytes)

    def consume_trifles(self) -> Mapping[int, int]:
        """Bytes by pid, transferred since the last call to and from unreported files; raises BpfError."""
        _, keys, values = self._trifles.lookup_batch(delete=True)
        return dict(zip(keys.cast("I"), values.cast("Q"), strict=True))

    def read(self, *, final: bool = False) -> Sequence[Sample]:
        """Sample what changed since the previous call; raises BpfError, which is an OSError.

        `final`: also the samples of once a second, such as the requests of devices.
        """
        now_ns = time.monotonic_ns()
        samples: list[Sample] = []
        self._ingest_records(now_ns, samples)
        words = memoryview(self._counters.lookup(_ZERO) or bytes(ctypes.sizeof(ProgramCounters))).cast("Q")
        counters = [sum(words[at::_COUNTERS].tolist()) for at in range(_SUMMED)]  # over all processors
        sweep = final or now_ns - self._swept_ns >= _SECOND_NS
        calls = counters.pop()
        if final or self._sockets.is_due(now_ns, calls):
            samples += self._sockets.read(now_ns, calls)
        if counters[0] != self._operations or sweep or self._counts_mapped_writes:
            self._operations = counters[0]
            self._ingest_sessions(now_ns, samples, sweep=sweep)
            samples += self._read_pauses()
        if sweep:
            self._limit_cost(now_ns, counters[0])
            self._swept_ns = now_ns
            self._sweep(now_ns, counters, samples)
        return samples

    def _ingest_records(self, now_ns: int, samples: list[Sample]) -> None:
        for data in self._ring.consume(_MAX_RECORDS):
            record = parse_record(data)
            path = record.names[0] if record.names else None
            if record.kind == RecordKind.SESSION and record.session is not None:
                path = path or self._paths.find(record.key)
                self._paths.forget(record.key, path)
                self._paths.record_use(record.process, path)
                samples.append(self._decoder.activity(record.key, record.session, path))
            elif record.kind == RecordKind.SEEN:
                self._paths.record(record.key, path)
            elif record.kind in LIFE_KINDS:
                if record.kind == RecordKind.MAPPED:
                    self._mapped_ns = now_ns
                    protection, sharing = record.flags & 0xFFFFFFFF, record.flags >> 32 & 0xF
                    if protection & _WRITE and sharing in (_SHARED, _SHARED_CHECKED):
                        self._files.attach_on_demand(_MAPPED_WRITES)
                if record.kind == RecordKind.CLOSED:
                    path = self._paths.pop_closed(record.key)
                elif record.kind in _FILE_KINDS and record.is_of_file:
                    self._paths.record(record.key, path)
                    self._paths.record_use(record.process, path)
                samples.append(self._decoder.life_event(record, self._paths.recent(record.process), path))

    @property
    def _counts_mapped_writes(self) -> bool:
        return _MAPPED_WRITES in self._files.links

    def _ingest_sessions(self, now_ns: int, samples: list[Sample], *, sweep: bool) -> None:
        count, keys, values = self._live.lookup_batch()
        since_ns, self._read_ns = self._read_ns - _MARGIN_NS, now_ns
        words = values.cast("Q")
        last_times = words[LAST_NS_WORD::SESSION_WORDS].tolist()
        closed = words[CLOSED_NS_WORD::SESSION_WORDS].tolist()
        failed = words[FAILED_NS_WORD::SESSION_WORDS].tolist()
        ended_processes = (
            self._ended_processes(values.cast("I")[PROCESS_WORD :: SESSION_WORDS * 2].tolist())
            if sweep and count
            else frozenset()
        )
        crowded = count > _CROWDED_SHARE * self._max_sessions
        ended_threads = (
            self._ended_threads(keys, values) if count > _FILLING_SHARE * self._max_sessions else frozenset()
        )
        for at in range(count):
            last_ns, active_ns = last_times[at], max(last_times[at], failed[at])
            stale = crowded and now_ns - last_ns > _IDLE_NS
            if active_ns < since_ns and not (closed[at] or stale or ended_processes or ended_threads):
                continue
            key = bytes(keys[at * KEY.size : (at + 1) * KEY.size])
            value = values[at * SESSION.size : (at + 1) * SESSION.size]
            has_ended = (
                bool(closed[at])
                or stale
                or int.from_bytes(value[PROCESS_WORD * 4 : PROCESS_WORD * 4 + 4], "little") in ended_processes
            )
            has_ended = has_ended or KEY.unpack(key)[_THREAD] in ended_threads
            if not has_ended and active_ns < since_ns:
                continue
            path = self._paths.find(key)
            if has_ended:
                self._live.delete(key)
                self._paths.forget(key)
            samples.append(self._decoder.activity(key, value, path, closed_ns=last_ns if has_ended else None))

    def _ended_processes(self, processes: list[int]) -> frozenset[int]:
        """Find the processes that have ended: the files that they left open are not reported again."""
        return frozenset(process for process in set(processes) if not (self._proc / str(process)).exists())

    def _ended_threads(self, keys: memoryview, values: memoryview) -> frozenset[int]:
        """Find the ended threads of processes with very many: nothing closes their sessions."""
        threads: dict[int, list[int]] = {}
        processes = values.cast("I")[PROCESS_WORD :: SESSION_WORDS * 2].tolist()
        for process, thread in zip(processes, keys.cast("I")[_THREAD_AT :: KEY.size // 4].tolist(), strict=True):
            threads.setdefault(process, []).append(thread)
        found: set[int] = set()
        for process, session_threads in threads.items():
            if len(session_threads) > _MANY_SESSIONS:
                living = self._proc / str(process) / "task"
                found.update(
                    set(session_threads) - {int(name) for name in (os.listdir(living) if living.exists() else ())}
                )
        return frozenset(found)

    def _limit_cost(self, now_ns: int, operations: int) -> None:
        """Switch off costly details while the rate of calls is so high that tracing would slow them."""
        made, self._swept_operations = operations - self._swept_operations, operations
        elapsed_ns = now_ns - self._swept_ns if self._swept_ns else _SECOND_NS
        if made * _SECOND_NS // elapsed_ns > self._shed_calls * self._processors:
            self._shed_until_ns = now_ns + _SHED_NS
        elif now_ns > self._shed_until_ns:
            self._shed_until_ns = 0
        self._set_control(ProgramControl.shed, int(self._shed_until_ns > 0))

    def _set_control(self, member: Any, value: int) -> None:
        self._control[member.offset : member.offset + member.size] = value.to_bytes(member.size, "little")

    def _sweep(self, now_ns: int, counters: list[int], samples: list[Sample]) -> None:
        if self._counts_mapped_writes and now_ns - self._mapped_ns > _FAULT_COUNTING_NS:
            self._set_control(ProgramControl.dirty_seen, 0)
            self._files.release(_MAPPED_WRITES)
        if self._blocks is not None:
            samples.extend(self._blocks.read())
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
                if count > self._paused.max_entries // 2 and self._ended_processes([int.from_bytes(key, "little")]):
                    self._paused.delete(key)
                    self._pauses.pop(key, None)
                continue
            self._pauses[key] = value
            start_ns, pauses, jiffies = (int.from_bytes(value[i : i + 8], "little") for i in (0, 8, 16))
            paused_ns = jiffies * _SECOND_NS // self._jiffies_per_second()
            pid = int.from_bytes(key, "little")
            found.append(DirtyPause(pid, self._decoder.ticks(start_ns), pauses, paused_ns))
        return found

    def _read_clock(self) -> tuple[int, int]:
        self._files.object.run_once("read_clock")
        every = [ProgramCounters.from_buffer_copy(value) for value in self._counters.lookup_percpu(_ZERO)]
        latest = max(every, key=lambda counters: counters.jiffies_ns)
        return latest.jiffies, latest.jiffies_ns

    def _jiffies_per_second(self) -> int:
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
