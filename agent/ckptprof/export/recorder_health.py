"""Health of ckptprof itself for /metrics; None: unknown, no series."""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class CollectorHealth(msgspec.Struct, kw_only=True):
    """Health of a collector."""

    success: int | None = None  # 1 if the last read succeeded
    faults: int | None = None
    seconds: float | None = None  # time spent reading
    unavailable: int | None = None  # 1 if it cannot work on this host


class RecorderHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Health of the recorder, cumulative except gauges."""

    frames: int | None = None
    dropped_frames: int | None = None  # not stored: the queue was full or the store failed
    late_frames: int | None = None  # arrived more than a second late
    behind_seconds: Callable[[], float] | None = None  # gauge, read at each scrape: age of the newest evaluated frame
    detection_faults: int | None = None  # events in progress were lost, and detection restarted
    detection_memory_bytes: int | None = None  # gauge: retained memory, estimated
    detection_forgotten_bytes: int | None = None  # released early because the budget was full
    left_out_events: int | None = None  # in progress, but not stored for a restart: only the largest are
    store_errors: int | None = None
    damaged_databases: int | None = None  # set aside and recreated
    store_bytes: int | None = None  # gauge: the database with its WAL
    store_log_bytes: int | None = None  # gauge: the WAL alone
    store_queue: int | None = None  # gauge: batches waiting for the writer
    sampler_restarts: int | None = None
    samplers_stuck: int | None = None  # gauge: killed, but blocked in a system call
    abandoned: int | None = None  # gauge: GPU driver queries without an answer
    cpu_seconds: float | None = None  # user and system time of the recorder
    resident_bytes: int | None = None  # gauge
    hung_saves: int | None = None  # gauge: saves in progress of which a writer stopped
    bursts_active: int | None = None  # gauge: bursts in progress
