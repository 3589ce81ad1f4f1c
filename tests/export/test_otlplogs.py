"""Checkpoints as log records of OpenTelemetry: what its own schema takes, and what of them leaves the host."""

from __future__ import annotations

import importlib
from typing import Any

import msgspec
import pytest
from tests.cluster.nodes import Job

from ckptprof.export.otlplogs import Revision, document

SAVE = Job(saves=1).seen()[0][0].checkpoints[0]
NOW_NS = 1_774_000_900_000_000_000


def _made() -> dict[str, Any]:
    told = [
        Revision(revision=3, checkpoint=SAVE),
        Revision(revision=1, checkpoint=msgspec.structs.replace(SAVE, uid="b")),
    ]
    return document(told, host="node-1", version="0.1", now_ns=NOW_NS)


def _attributes(record: dict[str, Any]) -> dict[str, Any]:
    return {one["key"]: next(iter(one["value"].values())) for one in record["attributes"]}


def test_a_record_is_flat_and_says_which_revision_it_is() -> None:
    """What was not seen is left out; 64-bit numbers are texts."""
    made = _made()

    (resource,) = made["resourceLogs"]
    (scope,) = resource["scopeLogs"]
    told = _attributes(scope["logRecords"][0])
    assert _attributes(resource["resource"]) == {"service.name": "ckptprof", "host.name": "node-1"}
    assert scope["logRecords"][0]["timeUnixNano"] == str(SAVE.end_ns)
    assert (told["ckptprof.uid"], told["ckptprof.revision"]) == (SAVE.uid, "3")
    assert (told["ckptprof.job"], told["ckptprof.path"], told["ckptprof.bytes"]) == (
        "train",
        SAVE.path,
        str(SAVE.bytes),
    )
    assert told["ckptprof.duration_seconds"] == pytest.approx((SAVE.end_ns - SAVE.start_ns) / 1e9)
    assert (told["ckptprof.limit"], told["slurm.job.id"]) == ("device", "8812")
    assert "ckptprof.durable_ns" not in told


@pytest.mark.readers
def test_opentelemetry_reads_it() -> None:
    """Its own messages take each field by its name and kind, and none is unknown to them."""
    logs = importlib.import_module("opentelemetry.proto.collector.logs.v1.logs_service_pb2")
    parse = importlib.import_module("google.protobuf.json_format").Parse

    read = parse(msgspec.json.encode(_made()), logs.ExportLogsServiceRequest())

    record = read.resource_logs[0].scope_logs[0].log_records[0]
    assert (record.time_unix_nano, record.observed_time_unix_nano) == (SAVE.end_ns, NOW_NS)
    assert (record.severity_number, record.event_name) == (9, "ckptprof.checkpoint")
    values = {one.key: one.value for one in record.attributes}
    assert values["ckptprof.bytes"].int_value == SAVE.bytes
    assert values["ckptprof.kind"].string_value == "save"
    assert values["ckptprof.duration_seconds"].double_value > 0
