"""Checkpoints as OpenTelemetry log records, in OTLP JSON: one per revision, flat, without a body.

https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding: 64-bit numbers are strings, enumerations are numbers.
A record may be sent twice: use the largest `ckptprof.revision` of each `ckptprof.uid`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ckptprof.model import Checkpoint

EVENT = "ckptprof.checkpoint"
_INFO = 9  # SEVERITY_NUMBER_INFO


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    """A revision of a checkpoint."""

    revision: int
    checkpoint: Checkpoint


def document(revisions: Iterable[Revision], *, host: str, version: str, now_ns: int) -> dict[str, Any]:
    """Return the body of a POST to /v1/logs."""
    resource = {"service.name": "ckptprof", "host.name": host}
    scope = {"name": "ckptprof", "version": version}
    records = [_record(one, now_ns) for one in revisions]
    return {
        "resourceLogs": [
            {"resource": {"attributes": _attributes(resource)}, "scopeLogs": [{"scope": scope, "logRecords": records}]}
        ]
    }


def _record(revision: Revision, now_ns: int) -> dict[str, Any]:
    one = revision.checkpoint
    verdict, cost, run = one.verdict, one.cost, one.run
    attributes: dict[str, str | int | float | None] = {
        "ckptprof.uid": one.uid,
        "ckptprof.revision": revision.revision,
        "ckptprof.id": one.id,
        "ckptprof.kind": one.kind.value,
        "ckptprof.status": one.status.value,
        "ckptprof.job": one.job,
        "ckptprof.framework": one.framework,
        "ckptprof.step": one.step,
        "ckptprof.ranks": one.ranks,
        "ckptprof.run.key": None if run is None else run.key,
        "ckptprof.place.key": None if one.place is None else one.place.key,
        "ckptprof.path": one.path,
        "ckptprof.start_ns": one.start_ns,
        "ckptprof.duration_seconds": (one.end_ns - one.start_ns) / 1e9,
        "ckptprof.durable_ns": one.durable_ns,
        "ckptprof.bytes": one.bytes,
        "ckptprof.files": one.files,
        "ckptprof.mode": None if one.mode is None else one.mode.value,
        "ckptprof.stall_seconds": None if one.stall_ns is None else one.stall_ns / 1e9,
        "ckptprof.gpu_seconds": None if cost is None else cost.gpu_seconds,
        "ckptprof.limit": None if verdict is None else verdict.limit.value,
        "ckptprof.limit_confidence": None if verdict is None else verdict.confidence,
        "slurm.job.id": run.job if run is not None and run.scheduler == "slurm" else None,
    }
    return {
        "timeUnixNano": str(one.end_ns),
        "observedTimeUnixNano": str(now_ns),
        "severityNumber": _INFO,
        "eventName": EVENT,
        "attributes": _attributes(attributes),
    }


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items() if value is not None]


def _value(value: str | float) -> dict[str, Any]:
    if isinstance(value, str):
        return {"stringValue": value}
    return {"intValue": str(value)} if isinstance(value, int) else {"doubleValue": value}
