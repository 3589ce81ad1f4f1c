"""Saves straight to an object store and restores from there are found at both levels; what else is sent is nothing.

The captures `sends-*` hold TLS, other clients, a restore of a single save, and files that are uploaded.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from recorder import JobBrokeError, Recorder, check_job

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("live"), pytest.mark.torch, pytest.mark.root, pytest.mark.bpf]

JOB = Path(__file__).parent / "jobs" / "sends.py"
LEVELS = ("trace", "poll")
SAVES = 4
PARTS = 8  # of 8 MiB each, as boto3 sends them
MORE = 0.02  # of the bytes: HTTP and TLS
LESS = 0.001  # what looks at the sockets met with the request before


def watched(recorder: Recorder, way: str) -> tuple[list[dict[str, Any]], list[Recorder]]:
    """Run the job once, watched at both levels; return what it logged, and who watched."""
    truth = recorder.work / "truth.jsonl"
    job = [sys.executable, str(JOB), way, "--dir", str(recorder.work / "job"), "--truth", str(truth)]
    first, *others = watching = [recorder.at(level) for level in LEVELS]
    check_job(first.run_with(others, *job, "--saves", str(SAVES)))
    return [json.loads(line) for line in truth.read_text().splitlines()] if truth.exists() else [], watching


def test_saves_without_a_file_are_found(recorder: Recorder) -> None:
    """Every one, with its bytes and its end, and where it went; where calls are counted, in how many parts."""
    logged, watching = watched(recorder, "saves")
    if len(logged) != SAVES:
        raise JobBrokeError(f"it has logged {len(logged)} saves")
    for one in watching:
        found = sorted(one.checkpoints(), key=lambda save: save["start_ns"])
        who = f"at the level {one.level}: {found}"
        assert [(save["kind"], save["medium"], save["path"]) for save in found] == [("save", "object", None)] * SAVES, (
            who
        )
        for save, event in zip(found, logged, strict=True):
            assert event["bytes"] <= save["bytes"] <= event["bytes"] * (1 + MORE), who
            assert event["start_ns"] - 10**9 <= save["start_ns"] <= save["end_ns"] <= event["end_ns"] + 10**9, who
            assert {place["port"] for place in save["sent"]["destinations"]} == {9000}, who
            assert save["sent"]["parts"] == (PARTS if one.level == "trace" else None), who


def test_a_second_run_that_goes_on_from_there_restores(recorder: Recorder) -> None:
    """And saves as much itself."""
    logged, watching = watched(recorder, "restores")
    if [event["kind"] for event in logged].count("restore") != 1:
        raise JobBrokeError(f"it has logged {logged}")
    for one in watching:
        found = sorted(one.checkpoints(), key=lambda told: told["start_ns"])
        who = f"at the level {one.level}: {found}"
        assert [(told["kind"], told["medium"]) for told in found] == [(event["kind"], "object") for event in logged], (
            who
        )
        for told, event in zip(found, logged, strict=True):
            assert event["bytes"] * (1 - LESS) <= told["bytes"] <= event["bytes"] * (1 + MORE), who
            assert event["start_ns"] - 10**9 <= told["start_ns"] <= told["end_ns"] <= event["end_ns"] + 10**9, who


def test_a_data_set_that_comes_from_the_store_is_no_restore(recorder: Recorder) -> None:
    """What else ranks send and receive is in tests/detect/events/test_sent.py and test_fetched.py."""
    _, watching = watched(recorder, "streams")
    for one in watching:
        assert one.checkpoints() == [], one.level
