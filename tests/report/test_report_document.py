"""Documents against their schemas."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.report.schemas import validate

from ckptprof.measures import (
    BeforeMeasure,
    ConnectionMeasure,
    DeviceMeasure,
    LinkMeasure,
    Measures,
    MemoryMeasure,
    MountMeasure,
    ProcessMeasure,
    ThreadMeasure,
)
from ckptprof.model import Checkpoint, Evidence, Pattern, Report, Watched
from ckptprof.report import comparison, diff, doctor, document


@pytest.mark.parametrize("name", ["run", "host", "empty", "blank", "course", "copies", "limits", "fine"])
def test_report_fits_its_schema(name: str, reports: dict[str, Report]) -> None:
    """Full, empty and never watched."""
    body = json.loads(document.dump(document.report_document(reports[name])))

    validate("report", body)
    assert len(reports[name].checkpoints) == len(body["checkpoints"])


def test_report_has_the_promised_fields(reports: dict[str, Report]) -> None:
    """The issue names them; a rename in the model must not rename the document."""
    body = document.report_document(reports["run"])
    promised = [
        "id",
        "kind",
        "job",
        "framework",
        "step",
        "ranks",
        "start_ns",
        "end_ns",
        "durable_ns",
        "bytes",
        "files",
        "path",
        "medium",
        "sent",
        "run",
        "place",
        "clock",
        "writers",
        "mode",
        "stall_ns",
        "blocked",
        "pattern",
        "verdict",
        "cost",
        "level",
        "limitations",
        "evidence",
        "status",
        "moments",
        "metadata",
        "written_bytes",
        "unique_bytes",
        "overheads",
        "storage_bytes",
        "cache",
        "risks",
        "at_risk_ns",
        "durable_is_most",
    ]

    promised_of_report = ["host", "watched", "copies_left_out", "hung", "answer", "outliers", "jobs", "checkpoints"]
    assert list(body) == ["schema_version", *promised_of_report]
    assert set(body["watched"]) == {"start_ns", "end_ns", "gaps", "set_aside"}
    assert not set(promised) - set(body["checkpoints"][0])
    assert set(body["checkpoints"][0]) - set(promised) == {"uid", "confidence", "owner"}
    assert body["checkpoints"][0]["pattern"]["class"] == "sequential-large"
    assert body["checkpoints"][0]["durable_ns"] is None


def test_show_fits_its_schema(detailed_checkpoint: Checkpoint) -> None:
    """Streams, timeline and devices included."""
    body = json.loads(document.dump(document.checkpoint_document(detailed_checkpoint)))

    validate("show", body)
    assert [len(body["checkpoint"][name]) for name in ("streams", "timeline", "devices")] == [2, 12, 2]
    assert set(body["checkpoint"]["timeline"][0]) == {"start_ns", "end_ns", "bytes"}


def test_a_diagnosis_fits_its_schema(make_diagnosed: Callable[..., Checkpoint]) -> None:
    """Verdict and cost in both documents, the measures in `show` only; the limits are those of the model."""
    thread = ThreadMeasure(pid=1, tid=2, comm="python", start_ns=1, end_ns=2, samples_by_state={"sync": 3})
    device = DeviceMeasure(
        device="vda", countable=True, seconds=1.5, read_bytes=0, written_bytes=9, reads=0, writes=1, busy_seconds=0.5
    )
    one = make_diagnosed(
        1, 0,
        measures=Measures(
            threads=(thread,), processes=(ProcessMeasure(pid=1, comm="python", stacks={"crc": 9}),), devices=(device,),
            links=(LinkMeasure(name="eth0", kind="nic", countable=True, received_bytes=1, sent_bytes=2),),
            mount=MountMeasure(mount_point="/", fs_type="nfs4", source="s:/", remote=True), memory=MemoryMeasure(),
            before=BeforeMeasure(blocked_ns=5),
            connections=(
                ConnectionMeasure(
                    remote="10.0.0.9", port=443, links=("eth0",), processes=(1,), relation="server", sockets=2,
                    sent_bytes=3, received_bytes=4, seconds=1.5, busy_seconds=1.0, rwnd_share=0.5, rtt_seconds=0.01,
                ),
            ),
        ),
    )  # fmt: skip
    report = Report(host="h", watched=Watched(start_ns=None, end_ns=None), checkpoints=(one,))
    whole = json.loads(document.dump(document.checkpoint_document(one)))
    brief = json.loads(document.dump(document.report_document(report)))

    validate("show", whole)
    validate("report", brief)
    assert brief["checkpoints"][0]["verdict"] == whole["checkpoint"]["verdict"]
    assert brief["checkpoints"][0]["cost"]["gpu_seconds"] == 312.0
    assert (brief["answer"]["limit"], brief["jobs"][0]["gpus"]) == ("serialize", 8)
    assert "measures" not in brief["checkpoints"][0]
    assert whole["checkpoint"]["measures"]["threads"][0]["samples_by_state"] == {"sync": 3}


def test_a_comparison_fits_its_schema(
    make_diagnosed: Callable[..., Checkpoint], make_checkpoint: Callable[..., Checkpoint],
) -> None:  # fmt: skip
    """With a verdict and without, seen and not."""
    watched = Watched(start_ns=None, end_ns=None)
    sides = [
        comparison.Side(selector="a", report=Report(host="h", watched=watched, checkpoints=(one,)))
        for one in (make_diagnosed(1, 0), make_checkpoint(2, 0))
    ]
    body = json.loads(document.dump(diff.document(comparison.compare(*sides))))

    validate("diff", body)
    assert body["kinds"][0]["limits"][1]["limit"] is None


def test_requests_of_a_device_fit_the_schema(detailed_checkpoint: Checkpoint) -> None:
    """Numbers where tracing saw them, null elsewhere."""
    seen = {
        "requests": 3, "mean_request_bytes": 4096.5, "sequential_share_bytes": 0.5, "latency_p50_seconds": 0.001,
        "latency_p99_seconds": 0.002, "max_in_flight": 2,
    }  # fmt: skip
    disk, nic = detailed_checkpoint.devices
    checkpoint = msgspec.structs.replace(detailed_checkpoint, devices=(msgspec.structs.replace(disk, **seen), nic))
    body = json.loads(document.dump(document.checkpoint_document(checkpoint)))

    validate("show", body)
    first, second = body["checkpoint"]["devices"]
    assert {name: first[name] for name in seen} == seen
    assert {second[name] for name in seen} == {None}


def test_doctor_fits_its_schema() -> None:
    """Both verdicts."""

    def told(checks: list[doctor.Check]) -> Any:
        return json.loads(document.dump(doctor.document(checks, version="0", host="h")))

    fine = told([doctor.Check("python", "ok", "Python 3.11")])
    bad = told([doctor.Check("clock", "warn", "off", "set it")])

    validate("doctor", fine)
    validate("doctor", bad)
    assert (fine["status"], bad["status"]) == ("ok", "degraded")


def test_schemas_are_strict(reports: dict[str, Report]) -> None:
    """A field that nobody described, or one that is missing, does not pass."""
    body = json.loads(document.dump(document.report_document(reports["run"])))
    body["checkpoints"][0]["surprise"] = 1
    with pytest.raises(Exception, match="surprise"):
        validate("report", body)
    del body["checkpoints"][0]["surprise"], body["checkpoints"][0]["pattern"]["operations"]
    with pytest.raises(Exception, match="operations"):
        validate("report", body)


def test_numbers_that_are_none_become_null(make_checkpoint: Callable[..., Checkpoint]) -> None:
    """NaN is not JSON."""
    strange = make_checkpoint(
        1, 0, pattern=Pattern(class_=None, mean_operation_bytes=math.nan),
        evidence=(Evidence(name="n", weight=math.inf, text=""),),
    )  # fmt: skip
    body = json.loads(document.dump(document.checkpoint_document(strange)))["checkpoint"]

    assert body["pattern"]["mean_operation_bytes"] is None
    assert body["evidence"][0]["weight"] is None
