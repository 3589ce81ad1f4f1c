"""A collector of OpenTelemetry gets log records, traces and metrics of checkpoints, by the SDK."""

from __future__ import annotations

import gzip
import http.server
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cluster.nodes import Job

from ckptprof.cli.main import main
from ckptprof.fleet import files, schema
from ckptprof.model import Session, Status
from ckptprof.store.writer import StoreWriter

otel_collector = pytest.importorskip("ckptprof.service.shipping.otel_collector")
logs = pytest.importorskip("opentelemetry.proto.collector.logs.v1.logs_service_pb2")
traces = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
metrics = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")
memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
SAVE = Job(saves=1).seen()[0][0].checkpoints[0]


class Stub:
    """Answers with a status; takes what it answers 200."""

    def __init__(self) -> None:
        self.status = 200
        self.records: list[tuple[str, dict[str, Any]]] = []  # the host, and its attributes
        self.spans: list[Any] = []
        self.metrics: list[dict[str, Any]] = []  # of a batch: the first data point of each
        self.tokens: list[str | None] = []
        self.url = ""


@pytest.fixture
def stub() -> Iterator[Stub]:
    """Return a collector on loopback."""
    made = Stub()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
            made.tokens.append(self.headers.get("authorization"))
            if made.status == 200 and self.path == "/v1/traces":
                told = traces.ExportTraceServiceRequest.FromString(body).resource_spans
                made.spans += [span for job in told for scope in job.scope_spans for span in scope.spans]
            elif made.status == 200 and self.path == "/v1/metrics":
                (scope,) = metrics.ExportMetricsServiceRequest.FromString(body).resource_metrics[0].scope_metrics
                made.metrics.append({one.name: getattr(one, one.WhichOneof("data")) for one in scope.metrics})
            elif made.status == 200:
                (of_host,) = logs.ExportLogsServiceRequest.FromString(body).resource_logs
                host = {one.key: one.value.string_value for one in of_host.resource.attributes}["host.name"]
                for record in of_host.scope_logs[0].log_records:
                    assert record.event_name == "ckptprof.checkpoint"
                    made.records.append((host, {one.key: _value(one.value) for one in record.attributes}))
            self.send_response(made.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        made.url = f"http://127.0.0.1:{server.server_address[1]}"
        yield made
        server.shutdown()
        thread.join()


def _value(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))


def test_each_revision_is_a_record_and_a_trace(
    stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the token of its headers; what it does not accept comes with the next run. Metrics count nothing twice."""
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer abc")
    words = ["ship", "--to", stub.url, "--db", str(tmp_path / "node.db")]
    with closing(StoreWriter(tmp_path / "node.db", ballast_bytes=0)) as writer:
        writer.start_session(
            Session(
                uid="s", host="node-1", boot_id="b", kernel="6.1", version="0", level="poll",
                start_ns=SAVE.start_ns, end_ns=SAVE.end_ns, clean=False,
            )
        )  # fmt: skip
        writer.add_checkpoints([msgspec.structs.replace(SAVE, uid=uid) for uid in "ab"])
        stub.status = 400
        assert main(words) == 6
        stub.status = 200
        assert main(words) == 0
        writer.add_checkpoints([msgspec.structs.replace(SAVE, uid="b", step=7)])
        assert main(words) == 0

    assert set(stub.tokens) == {"Bearer abc"}
    assert "does not accept the logs" in capsys.readouterr().err
    assert [(host, one["ckptprof.uid"], one["ckptprof.revision"]) for host, one in stub.records] == [
        ("node-1", "a", 1), ("node-1", "b", 1), ("node-1", "b", 2)
    ]  # fmt: skip
    first, last = stub.records[0][1], stub.records[-1][1]
    assert last["ckptprof.step"] == 7
    assert first["ckptprof.bytes"] == SAVE.bytes
    assert first["ckptprof.limit"] == "device"
    assert first["slurm.job.id"] == "8812"

    spans = [span for span in stub.spans if span.name == "ckptprof.checkpoint.save"]
    assert [(span.start_time_unix_nano, span.end_time_unix_nano) for span in spans] == [
        (SAVE.start_ns, SAVE.end_ns)
    ] * 3
    assert len({span.span_id for span in spans}) == 2  # the revision replaces what was sent before
    assert {one.name for one in spans[0].events} >= {"first_data", "last_data"}
    ranks = [span for span in stub.spans if span.parent_span_id == spans[0].span_id]
    assert [(span.name, _value(span.attributes[1].value)) for span in ranks] == [
        ("ckptprof.checkpoint.save.rank", rank) for rank in range(8)
    ]
    assert {span.trace_id for span in ranks} == {spans[0].trace_id}
    (counted,) = stub.metrics
    duration, size, stall = (counted[f"ckptprof.checkpoint.{name}"] for name in ("duration", "io", "stall.time"))
    assert duration.data_points[0].count == 2
    assert duration.aggregation_temporality == size.aggregation_temporality == 1  # delta
    assert size.data_points[0].as_int == 2 * SAVE.bytes
    assert stall.data_points[0].as_double == pytest.approx(2 * (SAVE.stall_ns or 0) / 1e9)


def test_a_checkpoint_of_two_nodes_is_one_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a word between the nodes; the service is the job, and what was broken off is an error."""
    for signal in ("LOGS", "METRICS"):
        monkeypatch.setenv(f"OTEL_{signal}_EXPORTER", "none")
    collector = otel_collector.OtelCollector("http://127.0.0.1:9")
    assert list(collector.exporters) == ["traces"]
    collector.exporters["traces"] = exporter = memory.InMemorySpanExporter()
    for node, record in enumerate(Job(saves=2, nodes=2).seen()[0]):
        broken = msgspec.structs.replace(record.checkpoints[1], status=Status.INCOMPLETE)
        rows = [
            {**msgspec.structs.asdict(one), "database": "d", "first_start_ns": one.start_ns, "lost": 0, "revision": 1}
            for one in (record.checkpoints[0], broken)
        ]
        table = schema.table_of(rows, schema.ShippedRow)
        collector.put(f"{files.inbox_folder(record.host)}/{node}.parquet", files.to_parquet(table))

    roots = [span for span in exporter.get_finished_spans() if span.parent is None]
    assert [span.resource.attributes["host.name"] for span in roots] == ["train-node-0"] * 2 + ["train-node-1"] * 2
    assert {span.resource.attributes["service.name"] for span in roots} == {"train"}
    assert roots[0].context.trace_id == roots[2].context.trace_id != roots[1].context.trace_id
    assert len({span.context.span_id for span in roots}) == 4
    assert [span.status.is_ok for span in roots] == [True, False, True, False]
