"""A collector of OpenTelemetry gets a log record for each revision, by the SDK."""

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
from ckptprof.model import Session
from ckptprof.store.writer import StoreWriter

logs = pytest.importorskip("opentelemetry.proto.collector.logs.v1.logs_service_pb2")
SAVE = Job(saves=1).seen()[0][0].checkpoints[0]


class Stub:
    """Answers with a status; takes what it answers 200."""

    def __init__(self) -> None:
        self.status = 200
        self.records: list[tuple[str, dict[str, Any]]] = []  # the host, and its attributes
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
            if made.status == 200:
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


def test_each_revision_is_a_record(
    stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the token of its headers; what it does not accept comes with the next run."""
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
    assert "does not accept the records" in capsys.readouterr().err
    assert [(host, one["ckptprof.uid"], one["ckptprof.revision"]) for host, one in stub.records] == [
        ("node-1", "a", 1), ("node-1", "b", 1), ("node-1", "b", 2)
    ]  # fmt: skip
    first, last = stub.records[0][1], stub.records[-1][1]
    assert last["ckptprof.step"] == 7
    assert first["ckptprof.bytes"] == SAVE.bytes
    assert first["ckptprof.limit"] == "device"
    assert first["slurm.job.id"] == "8812"
