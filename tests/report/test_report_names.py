"""The corpus of hostile names through every rendering."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable
from datetime import timezone

import pytest

from ckptprof.model import Checkpoint, DeviceShare, Evidence, Gap, Overhead, Report, Stream, Watched, Writer
from ckptprof.report import doctor, document, rows, show, terminal
from ckptprof.verdicts import Account, Limit, Verdict

_OURS = re.compile(r"\x1b\[[0-9;]*m")


def _verdict(name: str) -> Verdict:
    texts = (name, name)
    return Verdict(
        limit=Limit.DEVICE, sentence=name, confidence=0.5, seconds=1.0, evidence=texts, excluded=texts, missing=texts,
        accounts=(Account(limit=None, seconds=1.0, text=name),), capped_by=name, cause=name, remedy=name,
        reference=name, expected_seconds=0.5,
    )  # fmt: skip


def _hostile_checkpoint(make: Callable[..., Checkpoint], name: str) -> Checkpoint:
    begin = make(1, 0).start_ns
    stream = Stream(pid=1, comm=name, path=name, bytes=5, size=5, start_ns=begin, end_ns=begin + 9, observed_by=name)
    return make(
        1, 0, job=name, framework=name, path=name, cache=name, verdict=_verdict(name), limitations=(name,),
        writers=tuple(Writer(pid=pid, comm=name, bytes=5, role=name, end_ns=begin + pid) for pid in (1, 2)),
        overheads=(Overhead(reason=name, bytes=1, text=name),), written_bytes=2, unique_bytes=1,
        evidence=(Evidence(name=name, weight=1.0, text=name),),
        streams=(stream,),
        devices=(DeviceShare(device=name, kind=name, read_bytes=0, written_bytes=1, busy_seconds=0.1, under=name),),
    )  # fmt: skip


def _hostile_report(make: Callable[..., Checkpoint], name: str) -> Report:
    found = _hostile_checkpoint(make, name)
    gap = Gap(start_ns=found.start_ns, end_ns=found.start_ns + 5, reason=name)
    watched = Watched(start_ns=found.start_ns - 10, end_ns=found.end_ns + 10, gaps=(gap,))
    return Report(host=name, watched=watched, checkpoints=(found, make(2, 60)))


def _raw(text: str) -> set[str]:
    """Return the characters that a terminal may act on, newlines of ours apart."""
    return {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp", "Cs", "Co", "Cn") and c != "\n"}


@pytest.mark.parametrize("width", [60, 80, 200])
def test_terminal_has_no_raw_character(
    width: int, hostile: str, make_checkpoint: Callable[..., Checkpoint], zone: timezone
) -> None:
    """No name can reach the terminal raw, break a line or stretch it, in the report or in show, coloured or not."""
    report = _hostile_report(make_checkpoint, hostile)
    texts = [
        terminal.render(report, width=width, colour=False, zone=zone),
        show.render(report.checkpoints[0], width=width, colour=False, zone=zone),
        _OURS.sub("", terminal.render(report, width=width, colour=True, zone=zone)),
        _OURS.sub("", show.render(report.checkpoints[0], width=width, colour=True, zone=zone)),
    ]

    assert [set()] * 4 == [_raw(text) for text in texts]
    for text in texts:
        text.encode("utf-8")
    plain = texts[0].splitlines()
    assert len(plain) < 60


def test_terse_line_stays_one_line(hostile: str, make_checkpoint: Callable[..., Checkpoint], zone: timezone) -> None:
    """A name can forge neither a line nor a field."""
    lines = rows.tabbed(_hostile_report(make_checkpoint, hostile), zone=zone).split("\n")

    assert [f"{len(line.split(chr(9)))} fields" for line in lines] == ["14 fields", "14 fields", "1 fields"]
    assert {"\t"} == _raw("".join(lines))


def test_json_is_valid_and_inert(hostile: str, make_checkpoint: Callable[..., Checkpoint]) -> None:
    """Documents are valid JSON in valid UTF-8, hold the name, and nothing that a terminal obeys."""
    report = _hostile_report(make_checkpoint, hostile)
    for body in (document.report_document(report), document.checkpoint_document(report.checkpoints[0])):
        text = document.dump(body)
        text.encode("utf-8")

        assert set(body) == set(json.loads(text))
        assert not {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp", "Cs")} - {"\n"}
    parsed = json.loads(document.dump(document.report_document(report)))
    assert parsed["host"] == hostile.encode("utf-8", "backslashreplace").decode()


def test_doctor_is_inert(hostile: str) -> None:
    """Texts of checks may hold names (paths, errors) too."""
    check = doctor.Check("database", "fail", f"{hostile} is no database", f"remove {hostile}")
    text = doctor.render([check], width=80, colour=False)
    body = doctor.document([check], version="1", host=hostile)

    assert not _raw(text)
    assert json.loads(document.dump(body))["checks"][0]["status"] == "fail"
