"""Metric families as data: those declared by samples of the machine, and those of ckptprof itself.

Names and `device` values follow node_exporter (`node_disk_read_bytes_total` is `ckptprof_disk_read_bytes_total`), so
that both join on (instance, device). Units are seconds and bytes only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any

from ckptprof.export.columns import MetricColumn, Number
from ckptprof.export.recorder_health import CollectorHealth, RecorderHealth
from ckptprof_collectors.counters import CounterField as Declared
from ckptprof_collectors.counters import CounterGroup, Unit
from ckptprof_collectors.samples import SamplerHealth, TraceHealth


def declared(counted: CounterGroup) -> tuple[MetricColumn[Any], ...]:
    """Return the families declared by the fields of a sample."""
    return tuple(
        MetricColumn(column.metric, column.text, _reader(column), kind="gauge" if column.gauge else "counter")
        for column in counted.columns
        if column.metric is not None
    )


def _reader(column: Declared) -> Callable[[Any], Number | None]:
    read: Callable[[Any], int | None] = attrgetter(column.field)
    if column.unit is Unit.ONE:
        return read
    base = column.unit.to_base
    return lambda sample: None if (value := read(sample)) is None else base(value)


_SAMPLER = MetricColumn[SamplerHealth]
_SAMPLER_GAUGE = partial(_SAMPLER, kind="gauge")
SAMPLER = (
    _SAMPLER("sampler_ticks_total", "Ticks of the sampler.", lambda s: s.ticks),
    _SAMPLER("sampler_late_ticks_total", "Ticks that came late.", lambda s: s.late_ticks),
    _SAMPLER("sampler_lateness_seconds_total", "Lateness of all ticks.", lambda s: s.lateness_ns / 1e9),
    _SAMPLER(
        "sampler_dropped_frames_total", "Frames dropped because the recorder was too slow.", lambda s: s.dropped_frames
    ),
    _SAMPLER_GAUGE("sampler_hung_lookups", "File lookups that do not return.", lambda s: s.hung_lookups),
    _SAMPLER_GAUGE(
        "sampler_abandoned", "py-spy runs and GPU driver queries that do not end when killed.", lambda s: s.abandoned
    ),
    _SAMPLER(
        "sampler_refused_lookups_total", "Lookups and stack samples left out: too many.", lambda s: s.refused_lookups
    ),
    _SAMPLER(
        "sampler_lost_folder_events_total", "Events lost in watched folders: too many.", lambda s: s.lost_folder_events
    ),
    _SAMPLER(
        "sampler_starved_seconds_total",
        "Lateness of ticks that came 0.25 s late or more.",
        lambda s: None if s.starved_ns is None else s.starved_ns / 1e9,
    ),
    _SAMPLER(
        "sampler_left_out_total",
        "Samples and file lookups left out to keep the CPU budget.",
        lambda s: None if s.left_out is None else sum(s.left_out.values()),
    ),
    _SAMPLER_GAUGE("watched_processes", "Processes monitored closely now.", lambda s: s.watched_processes),
    _SAMPLER_GAUGE("known_processes", "Processes known to the sampler now.", lambda s: s.known_processes),
)

_TRACE = MetricColumn[TraceHealth]
_TRACE_GAUGE = partial(_TRACE, kind="gauge")
TRACE = (
    _TRACE("trace_operations_total", "Reads and writes of files that the trace counted.", lambda s: s.calls),
    _TRACE("trace_untimed_operations_total", "Traced operations without a time.", lambda s: s.untimed_operations),
    _TRACE(
        "trace_lost_operations_total",
        "Operations counted without their file, because a map was full.",
        lambda s: s.lost_operations,
    ),
    _TRACE(
        "trace_lost_bytes_total", "Bytes counted without their file, because a map was full.", lambda s: s.lost_bytes
    ),
    _TRACE("trace_lost_sessions_total", "Short file sessions counted without details.", lambda s: s.lost_sessions),
    _TRACE("trace_lost_events_total", "Events dropped because the buffer was full.", lambda s: s.lost_events),
    _TRACE_GAUGE("trace_degradations", "Kinds of I/O that the trace does not cover here.", lambda s: len(s.degraded)),
)

_RECORDER = MetricColumn[RecorderHealth]
_RECORDER_GAUGE = partial(_RECORDER, kind="gauge")
RECORDER = (
    _RECORDER("recorder_frames_total", "Frames that reached the recorder.", lambda s: s.frames),
    _RECORDER("recorder_dropped_frames_total", "Frames that were not stored.", lambda s: s.dropped_frames),
    _RECORDER("recorder_late_frames_total", "Frames that reached the recorder late.", lambda s: s.late_frames),
    _RECORDER_GAUGE(
        "recorder_behind_seconds",
        "Delay of the evaluation of frames; above 10 s checkpoints are reported late.",
        lambda s: None if s.behind_seconds is None else s.behind_seconds(),
    ),
    _RECORDER("recorder_detection_faults_total", "Faults of the detection.", lambda s: s.detection_faults),
    *(
        _RECORDER_GAUGE(name, text, lambda s: s.detection_memory_bytes)
        for name, text in (
            ("recorder_detection_memory_bytes", "Memory retained by detection, estimated."),
            ("recorder_detection_kept_bytes", "Old name of ckptprof_recorder_detection_memory_bytes, until 0.3."),
        )
    ),
    _RECORDER(
        "recorder_detection_forgotten_bytes_total",
        "Memory released early to keep the budget of detection, estimated.",
        lambda s: s.detection_forgotten_bytes,
    ),
    _RECORDER(
        "recorder_left_out_events_total",
        "Events that a kill would lose: too many in progress to store.",
        lambda s: s.left_out_events,
    ),
    _RECORDER("sampler_restarts_total", "Restarts of the sampler.", lambda s: s.sampler_restarts),
    _RECORDER_GAUGE("samplers_stuck", "Samplers that do not end when killed.", lambda s: s.samplers_stuck),
    _RECORDER_GAUGE("recorder_abandoned", "GPU driver queries without an answer.", lambda s: s.abandoned),
    _RECORDER("store_errors_total", "Writes that the store refused.", lambda s: s.store_errors),
    _RECORDER("store_damaged_total", "Damaged databases that were set aside.", lambda s: s.damaged_databases),
    _RECORDER_GAUGE("store_size_bytes", "Size of the database.", lambda s: s.store_bytes),
    _RECORDER_GAUGE(
        "store_log_bytes",
        "Size of the database's log; it grows while a reader blocks its reset.",
        lambda s: s.store_log_bytes,
    ),
    _RECORDER_GAUGE("store_queue_batches", "Batches waiting for the store.", lambda s: s.store_queue),
    _RECORDER_GAUGE(
        "hung_saves", "Saves in progress of which a writer neither writes nor ends.", lambda s: s.hung_saves
    ),
    _RECORDER_GAUGE("bursts_active", "Bursts in progress.", lambda s: s.bursts_active),
)

_COLLECTOR = MetricColumn[CollectorHealth]
_COLLECTOR_GAUGE = partial(_COLLECTOR, kind="gauge")
COLLECTOR = (
    _COLLECTOR_GAUGE("collector_success", "1 if the last read succeeded.", lambda s: s.success),
    _COLLECTOR("collector_faults_total", "Reads that failed.", lambda s: s.faults),
    _COLLECTOR("collector_duration_seconds_total", "Time spent reading.", lambda s: s.seconds),
    _COLLECTOR_GAUGE("collector_unavailable", "1 if it cannot work on this host.", lambda s: s.unavailable),
)

_PROCESS = MetricColumn[tuple[float | None, int | None]]
_PROCESS_GAUGE = partial(_PROCESS, kind="gauge")
PROCESS = (
    _PROCESS("cpu_seconds_total", "CPU time of ckptprof itself.", lambda s: s[0]),
    _PROCESS_GAUGE("resident_memory_bytes", "Memory of ckptprof itself.", lambda s: s[1]),
)

ACTIVE = (
    MetricColumn[bool]("trace_active", "1 while every read and write is traced, 0 while polled.", int, kind="gauge"),
)
DROPPED = (MetricColumn[int]("series_dropped_total", "Names above the cap of their kind.", int),)

# For sites with node_exporter that scrape only checkpoints: includes what the alerts need, except the one on
# collectors. Names of families, without `_total`.
MINIMAL_BOUNDS_SECONDS = (1, 10, 60, 600)
MINIMAL = frozenset(
    f"ckptprof_{name}"
    for name in (
        "build_info", "checkpoint_bytes", "checkpoint_duration_seconds", "checkpoint_gpu_seconds",
        "checkpoint_restores", "checkpoint_saves", "checkpoint_stall_seconds", "hung_saves", "incomplete_checkpoints",
        "last_checkpoint_at_risk_seconds", "last_checkpoint_bytes", "last_checkpoint_duration_seconds",
        "last_checkpoint_expected_seconds", "last_checkpoint_limit", "last_checkpoint_path_seconds",
        "last_checkpoint_timestamp_seconds", "newest_restorable_step", "newest_restorable_timestamp_seconds",
        "sampler_dropped_frames", "sampler_starved_seconds", "storage_save_seconds", "storage_saved_bytes",
        "storage_stall_seconds", "trace_active", "trace_lost_operations",
        "recorder_dropped_frames", "recorder_detection_faults", "sampler_restarts", "samplers_stuck", "store_errors",
        "store_damaged", "cpu_seconds", "resident_memory_bytes",
    )
)  # fmt: skip
