"""What ckptprof tells of itself on the metrics page; None is: not known, and gives no series."""

from __future__ import annotations

import msgspec


class CollectorHealth(msgspec.Struct, kw_only=True):
    """How a collector fares."""

    success: int | None = None  # 1 if the last read went well
    faults: int | None = None
    seconds: float | None = None  # spent in reading
    unavailable: int | None = None  # 1 if it cannot work on this host


class RecorderHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The recorder's account of itself, cumulative but for the gauges."""

    frames: int | None = None
    dropped_frames: int | None = None  # not stored: the queue was full or the store failed
    late_frames: int | None = None  # came more than a second after their time
    behind_seconds: float | None = None  # gauge: from the time of the last frame to when it was judged
    detection_faults: int | None = None  # what was going on was lost, and detection began anew
    detection_kept_bytes: int | None = None  # gauge: of what it was told, about
    detection_forgotten_bytes: int | None = None  # before their time, for want of room in its budget
    left_out_events: int | None = None  # went on, and were not kept for the next start: only the largest are
    store_errors: int | None = None
    damaged_databases: int | None = None  # moved aside, and begun anew
    store_bytes: int | None = None  # gauge: the database with its WAL
    store_log_bytes: int | None = None  # gauge: the WAL alone
    store_queue: int | None = None  # gauge: batches that wait for the writer
    sampler_restarts: int | None = None
    samplers_stuck: int | None = None  # gauge: were killed and have not ended, for a call hangs in the kernel
    abandoned: int | None = None  # gauge: questions to a GPU driver that are not answered
    cpu_seconds: float | None = None  # user and system time of the recorder
    resident_bytes: int | None = None  # gauge
    bursts_active: int | None = None  # gauge: bursts that are open now
