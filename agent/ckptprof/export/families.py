"""What is exported, as data: every family with its help and the number of the sample that it is.

Names follow node_exporter's (`node_disk_read_bytes_total` is `ckptprof_disk_read_bytes_total` here) and so do the
values of `device`, so that both join on (instance, device). Seconds and bytes only.
"""

from __future__ import annotations

from ckptprof.export.columns import Column
from ckptprof.export.health import CollectorHealth, ProcessHealth, RecorderHealth
from ckptprof_collectors.samples import DiskSample, MemorySample, NicSample, RdmaSample, SamplerHealth, TraceHealth

SECTOR_BYTES = 512  # always, whatever the device says (Documentation/block/stat.rst)


def _divided(value: int | None, divisor: float) -> float | None:
    return None if value is None else value / divisor


_DISK = Column[DiskSample]
DISK = (
    _DISK("disk_read_bytes_total", "Bytes read from the device.", lambda s: s.read_sectors * SECTOR_BYTES),
    _DISK("disk_written_bytes_total", "Bytes written to the device.", lambda s: s.write_sectors * SECTOR_BYTES),
    _DISK("disk_reads_completed_total", "Reads that the device completed.", lambda s: s.read_ios),
    _DISK("disk_writes_completed_total", "Writes that the device completed.", lambda s: s.write_ios),
    _DISK("disk_read_time_seconds_total", "Time spent by all reads.", lambda s: s.read_ms / 1e3),
    _DISK("disk_write_time_seconds_total", "Time spent by all writes.", lambda s: s.write_ms / 1e3),
    _DISK(
        "disk_io_time_seconds_total",
        "Time in which the device had a request in flight.",
        lambda s: s.io_ms / 1e3,
    ),
    _DISK(
        "disk_io_time_weighted_seconds_total",
        "Time in flight, summed over requests.",
        lambda s: s.weighted_ms / 1e3,
    ),
    _DISK("disk_flush_requests_total", "Cache flushes that the device completed.", lambda s: s.flush_ios),
    _DISK(
        "disk_flush_requests_time_seconds_total",
        "Time spent by all cache flushes.",
        lambda s: _divided(s.flush_ms, 1e3),
    ),
)

_NIC = Column[NicSample]
NIC = (
    _NIC("network_receive_bytes_total", "Bytes received.", lambda s: s.rx_bytes),
    _NIC("network_transmit_bytes_total", "Bytes sent.", lambda s: s.tx_bytes),
    _NIC("network_receive_errs_total", "Errors in receiving.", lambda s: s.rx_errors),
    _NIC("network_transmit_errs_total", "Errors in sending.", lambda s: s.tx_errors),
    _NIC("network_receive_drop_total", "Packets dropped in receiving.", lambda s: s.rx_dropped),
    _NIC("network_transmit_drop_total", "Packets dropped in sending.", lambda s: s.tx_dropped),
)

_RDMA = Column[RdmaSample]
RDMA = (
    _RDMA("infiniband_port_data_received_bytes_total", "Bytes received by the RDMA port.", lambda s: s.rx_bytes),
    _RDMA("infiniband_port_data_transmitted_bytes_total", "Bytes sent by the RDMA port.", lambda s: s.tx_bytes),
    _RDMA(
        "infiniband_port_transmit_wait_total",
        "Ticks with data to send and no credit to send it.",
        lambda s: s.tx_wait_ticks,
    ),
)

_MEMORY = Column[MemorySample]


def _psi(name: str, text: str, field: str) -> Column[MemorySample]:
    return _MEMORY(name, text, lambda s: _divided(getattr(s, field), 1e6))


MEMORY = (
    _MEMORY("memory_total_bytes", "Memory of the host.", lambda s: s.total_bytes, kind="gauge"),
    _MEMORY(
        "memory_available_bytes", "Memory that can be had without swapping.", lambda s: s.available_bytes, kind="gauge"
    ),
    _MEMORY("memory_cached_bytes", "Page cache.", lambda s: s.cached_bytes, kind="gauge"),
    _MEMORY(
        "memory_dirty_bytes",
        "Written by programs, not yet on its way to a device.",
        lambda s: s.dirty_bytes,
        kind="gauge",
    ),
    _MEMORY("memory_writeback_bytes", "On its way to a device now.", lambda s: s.writeback_bytes, kind="gauge"),
    _MEMORY(
        "memory_dirty_threshold_bytes",
        "Dirty memory at which writers are blocked.",
        lambda s: s.dirty_threshold_bytes,
        kind="gauge",
    ),
    _MEMORY(
        "memory_dirty_background_threshold_bytes",
        "Dirty memory at which writeback starts by itself.",
        lambda s: s.dirty_background_threshold_bytes,
        kind="gauge",
    ),
    _MEMORY("memory_dirtied_bytes_total", "Page cache made dirty.", lambda s: s.dirtied_bytes),
    _MEMORY("memory_written_bytes_total", "Page cache written back.", lambda s: s.written_bytes),
    _MEMORY("memory_major_faults_total", "Page faults that had to read from a device.", lambda s: s.major_faults),
    _psi("pressure_io_waiting_seconds_total", "Time in which some task waited for I/O.", "psi_io_some_us"),
    _psi("pressure_io_stalled_seconds_total", "Time in which no task ran for waiting on I/O.", "psi_io_full_us"),
    _psi("pressure_memory_waiting_seconds_total", "Time in which some task waited for memory.", "psi_memory_some_us"),
    _psi(
        "pressure_memory_stalled_seconds_total", "Time in which no task ran for lack of memory.", "psi_memory_full_us"
    ),
)

_SAMPLER = Column[SamplerHealth]
SAMPLER = (
    _SAMPLER("sampler_ticks_total", "Ticks of the sampler.", lambda s: s.ticks),
    _SAMPLER("sampler_late_ticks_total", "Ticks that came late.", lambda s: s.late_ticks),
    _SAMPLER("sampler_lateness_seconds_total", "Lateness of all ticks.", lambda s: s.lateness_ns / 1e9),
    _SAMPLER(
        "sampler_dropped_frames_total", "Frames that the recorder did not take in time.", lambda s: s.dropped_frames
    ),
    _SAMPLER("watched_processes", "Processes watched closely now.", lambda s: s.watched_processes, kind="gauge"),
    _SAMPLER("known_processes", "Processes known to the sampler now.", lambda s: s.known_processes, kind="gauge"),
)

_TRACE = Column[TraceHealth]
TRACE = (
    _TRACE("trace_operations_total", "Reads and writes of files that the trace counted.", lambda s: s.calls),
    _TRACE("trace_untimed_operations_total", "Of those, the ones not timed.", lambda s: s.untimed_operations),
    _TRACE("trace_lost_operations_total", "Counted without their file, for want of room.", lambda s: s.lost_operations),
    _TRACE("trace_lost_bytes_total", "Bytes counted without their file, for want of room.", lambda s: s.lost_bytes),
    _TRACE("trace_lost_sessions_total", "Small uses of files that were only counted.", lambda s: s.lost_sessions),
    _TRACE("trace_lost_events_total", "Events for which the trace had no room.", lambda s: s.lost_events),
    _TRACE(
        "trace_degradations", "Kinds of I/O that the trace cannot see here.", lambda s: len(s.degraded), kind="gauge"
    ),
)

_RECORDER = Column[RecorderHealth]
RECORDER = (
    _RECORDER("recorder_frames_total", "Frames that reached the recorder.", lambda s: s.frames),
    _RECORDER("recorder_dropped_frames_total", "Frames that were not stored.", lambda s: s.dropped_frames),
    _RECORDER("recorder_late_frames_total", "Frames that reached the recorder late.", lambda s: s.late_frames),
    _RECORDER("recorder_detection_faults_total", "Faults of the detection.", lambda s: s.detection_faults),
    _RECORDER("sampler_restarts_total", "Times the sampler had to be started again.", lambda s: s.sampler_restarts),
    _RECORDER("store_errors_total", "Writes that the store refused.", lambda s: s.store_errors),
    _RECORDER("store_size_bytes", "Size of the database.", lambda s: s.store_bytes, kind="gauge"),
    _RECORDER("store_queue_batches", "Batches that wait for the store.", lambda s: s.store_queue, kind="gauge"),
    _RECORDER("bursts_active", "Bursts that are open now.", lambda s: s.bursts_active, kind="gauge"),
)

_COLLECTOR = Column[CollectorHealth]
COLLECTOR = (
    _COLLECTOR("collector_success", "1 if the last read went well.", lambda s: s.success, kind="gauge"),
    _COLLECTOR("collector_faults_total", "Reads that failed.", lambda s: s.faults),
    _COLLECTOR("collector_duration_seconds_total", "Time spent in reading.", lambda s: s.seconds),
    _COLLECTOR("collector_unavailable", "1 if it cannot work on this host.", lambda s: s.unavailable, kind="gauge"),
)

_PROCESS = Column[ProcessHealth]
PROCESS = (
    _PROCESS("cpu_seconds_total", "CPU time of ckptprof itself.", lambda s: s.cpu_seconds),
    _PROCESS("resident_memory_bytes", "Memory of ckptprof itself.", lambda s: s.resident_bytes, kind="gauge"),
)

ACTIVE = (Column[bool]("trace_active", "1 while every read and write is traced, 0 while polled.", int, kind="gauge"),)
DROPPED = (Column[int]("series_dropped_total", "Names over the cap of their kind, shown as `other`.", int),)
