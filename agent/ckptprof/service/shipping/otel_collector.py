"""Log records of OpenTelemetry, by its SDK: one for each revision of a checkpoint, flat, without a body.

A record may be sent twice: use the largest `ckptprof.revision` of each `ckptprof.uid`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
import pyarrow as pa
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExportResult
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from pyarrow import parquet

from ckptprof import __version__
from ckptprof.errors import StoreError, UsageError
from ckptprof.export.listening import is_loopback
from ckptprof.fleet.schema import ShippedRow

EVENT = "ckptprof.checkpoint"
_PATH = "/v1/logs"


class OtelCollector:
    """A collector, reached by OTLP over HTTP."""

    def __init__(self, url: str) -> None:
        """Open it; a token is in OTEL_EXPORTER_OTLP_HEADERS. Raises UsageError for a URL that is not safe."""
        parts = urlsplit(url)
        if "@" in url or not parts.hostname:
            raise UsageError("this is not the URL of a collector", hint="give https://HOST:PORT")
        if parts.scheme != "https" and not is_loopback(parts.hostname):
            raise UsageError(f"{url} does not authenticate the server", hint="use https; http only for this host")
        self._url = url
        self._exporter = OTLPLogExporter(url if parts.path.strip("/") else url.rstrip("/") + _PATH)

    def put(self, name: str, data: bytes) -> None:
        """Send the rows of a batch; raises StoreError if the collector does not accept them."""
        if not name.endswith(".parquet"):  # the state of a recorder is for fleets
            return
        host = unquote(Path(name).parent.name.partition("=")[2])
        rows = parquet.read_table(pa.BufferReader(data)).to_pylist()
        checkpoints = [msgspec.convert(row, ShippedRow) for row in rows if not row["lost"]]
        resource = Resource({"service.name": "ckptprof", "host.name": host})
        scope = InstrumentationScope("ckptprof", __version__)
        records = [ReadableLogRecord(_record(one), resource, scope) for one in checkpoints]
        if records and self._exporter.export(records) is not LogRecordExportResult.SUCCESS:
            raise StoreError(f"{self._url} does not accept the records", hint="its reason is above; it is tried again")


def _record(one: ShippedRow) -> LogRecord:
    verdict, cost, run = one.verdict, one.cost, one.run
    attributes: dict[str, Any] = {
        "ckptprof.uid": one.uid,
        "ckptprof.revision": one.revision,
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
    return LogRecord(
        timestamp=one.end_ns,
        observed_timestamp=time.time_ns(),
        severity_number=SeverityNumber.INFO,
        event_name=EVENT,
        attributes={name: value for name, value in attributes.items() if value is not None},
    )
