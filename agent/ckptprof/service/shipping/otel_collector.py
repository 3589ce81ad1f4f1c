"""A collector of OpenTelemetry, by its SDK: log records, spans and metrics of checkpoints.

Each revision of a checkpoint is a log record and a trace, whose ids are the same for all revisions: what is sent twice
replaces what was sent before. The parts of a checkpoint on several nodes are one trace. Metrics are of first revisions
only, as differences since the last batch.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
import pyarrow as pa
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags
from pyarrow import parquet

from ckptprof import __version__
from ckptprof.errors import StoreError, UsageError
from ckptprof.export.listening import is_loopback
from ckptprof.fleet.schema import ShippedRow
from ckptprof.model import Status as Completeness

EVENT = "ckptprof.checkpoint"
_SCOPE = InstrumentationScope("ckptprof", __version__)
_EXPORTERS = {"logs": OTLPLogExporter, "traces": OTLPSpanExporter, "metrics": OTLPMetricExporter}
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_DELTA: dict[type, AggregationTemporality] = dict.fromkeys((Counter, Histogram), AggregationTemporality.DELTA)
_MOMENTS = ("first_data", "last_data", "synced", "committed", "cleaned")


class OtelCollector:
    """A collector, reached by OTLP over HTTP."""

    def __init__(self, url: str) -> None:
        """Open it; a token is in OTEL_EXPORTER_OTLP_HEADERS. Raises UsageError for a URL that is not safe.

        OTEL_LOGS_EXPORTER, OTEL_TRACES_EXPORTER and OTEL_METRICS_EXPORTER omit a signal if they are `none`.
        """
        parts = urlsplit(url)
        if "@" in url or not parts.hostname:
            raise UsageError("this is not the URL of a collector", hint="give https://HOST:PORT")
        if parts.scheme != "https" and not is_loopback(parts.hostname):
            raise UsageError(f"{url} does not authenticate the server", hint="use https; http only for this host")
        self._url = url
        base = url.removesuffix("/").removesuffix("/v1/logs")
        self.exporters: dict[str, Any] = {
            signal: exporter(f"{base}/v1/{signal}")
            for signal, exporter in _EXPORTERS.items()
            if os.environ.get(f"OTEL_{signal.upper()}_EXPORTER") != "none"
        }

    def put(self, name: str, data: bytes) -> None:
        """Send the rows of a batch; raises StoreError if the collector does not accept them."""
        if not name.endswith(".parquet"):  # the state of a recorder is for fleets
            return
        host = unquote(Path(name).parent.name.partition("=")[2])
        rows = parquet.read_table(pa.BufferReader(data)).to_pylist()
        checkpoints = [msgspec.convert(row, ShippedRow) for row in rows if not row["lost"]]
        resource = Resource({"service.name": "ckptprof", "host.name": host})
        self._send("logs", [ReadableLogRecord(_record(one), resource, _SCOPE) for one in checkpoints])
        self._send("traces", [span for one in checkpoints for span in _spans(one, host)])
        self._send("metrics", _metrics([one for one in checkpoints if one.revision == 1], resource))  # never twice

    def _send(self, signal: str, batch: Any) -> None:
        exporter = self.exporters.get(signal)
        if batch and exporter is not None and exporter.export(batch).name != "SUCCESS":
            raise StoreError(f"{self._url} does not accept the {signal}", hint="its reason is above; it is tried again")


def _record(one: ShippedRow) -> LogRecord:
    return LogRecord(
        timestamp=one.end_ns,
        observed_timestamp=time.time_ns(),
        severity_number=SeverityNumber.INFO,
        event_name=EVENT,
        attributes=_attributes(one),
    )


def _spans(one: ShippedRow, host: str) -> Iterator[ReadableSpan]:
    """Yield a span of a checkpoint, and below it those of its ranks; their service is the job."""
    key = one.uid if one.run is None or one.step is None else f"{one.run.key} {one.run.restart} {one.kind} {one.step}"
    trace = int.from_bytes(hashlib.sha256(key.encode()).digest()[:16], "big")
    resource = Resource({"service.name": one.job, "host.name": host})
    name = f"{EVENT}.{one.kind.value}"
    root = _context(trace, one.uid)
    broken = one.status is Completeness.INCOMPLETE
    moments = {moment: getattr(one.moments, f"{moment}_ns") for moment in _MOMENTS} | {"durable": one.durable_ns}
    yield ReadableSpan(
        name, root, resource=resource, attributes=_attributes(one), instrumentation_scope=_SCOPE,
        start_time=one.start_ns, end_time=one.end_ns,
        status=Status(StatusCode.ERROR, one.status.value) if broken else Status(),
        events=[Event(moment, timestamp=at_ns) for moment, at_ns in moments.items() if at_ns is not None],
    )  # fmt: skip
    for writer in one.writers:
        if writer.start_ns is None or writer.end_ns is None:
            continue
        known = {"process.pid": writer.pid, "ckptprof.rank": writer.rank, "ckptprof.bytes": writer.bytes}
        yield ReadableSpan(
            f"{name}.rank", _context(trace, f"{one.uid} {writer.pid} {writer.rank}"), root, resource,
            {key: value for key, value in known.items() if value is not None}, instrumentation_scope=_SCOPE,
            start_time=writer.start_ns, end_time=writer.end_ns,
        )  # fmt: skip


def _context(trace: int, key: str) -> SpanContext:
    span = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big")
    return SpanContext(trace, span, is_remote=False, trace_flags=_SAMPLED)


def _metrics(checkpoints: Iterable[ShippedRow], resource: Resource) -> Any:
    reader = InMemoryMetricReader(_DELTA)
    provider = MeterProvider([reader], resource, shutdown_on_exit=False)
    meter = provider.get_meter("ckptprof", __version__)
    duration = meter.create_histogram(f"{EVENT}.duration", "s", "Duration of checkpoints.")
    size = meter.create_counter(f"{EVENT}.io", "By", "Bytes of checkpoints.")
    stall = meter.create_counter(f"{EVENT}.stall.time", "s", "Time for which checkpoints blocked training.")
    for one in checkpoints:
        labels = {"ckptprof.kind": one.kind.value, "ckptprof.status": one.status.value}
        duration.record((one.end_ns - one.start_ns) / 1e9, labels)
        size.add(one.bytes, labels)
        stall.add((one.stall_ns or 0) / 1e9, labels)
    data = reader.get_metrics_data()
    provider.shutdown()
    return data


def _attributes(one: ShippedRow) -> dict[str, Any]:
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
    return {name: value for name, value in attributes.items() if value is not None}
