"""Who reads saves back, and what becomes of the others, of a job that is trained, evaluated, resumed and fine-tuned."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from recorder import Recorder, check_job

pytestmark = [pytest.mark.slow, pytest.mark.torch, pytest.mark.bpf]

JOB = Path(__file__).with_name("jobs") / "lineage.py"
USES = {"evaluate": "read", "train": "resume", "tune": "branch"}
DROPPED = 60  # step that is not in the page cache when it is first read
WITHIN_SECONDS = 2.0


def test_who_reads_a_save_back(recorder: Recorder, record_property: Callable[[str, object], None]) -> None:
    """Readers, their delays, and what was deleted or overwritten, as the job logged them."""
    traced, polled = recorder.at("trace"), recorder.at("poll")
    truth = recorder.work / "truth.jsonl"
    check_job(traced.run_with([polled], sys.executable, str(JOB), str(recorder.work / "job"), str(truth)))

    logged = [json.loads(line) for line in truth.read_text().splitlines()]
    saved = [one for one in logged if one["event"] == "saved"]
    for one in (traced, polled):
        result = one.call("report", "--reads", "--json", "--db", str(one.database))
        assert result.returncode == 0, result.stderr
        found = [save for job in json.loads(result.stdout)["jobs"] for save in job["saves"]]
        found.sort(key=lambda save: save["saved_ns"])
        assert [Path(save["path"]).name for save in found] == [each["file"] for each in saved]
        errors = []
        for save, each in zip(found, saved, strict=True):
            after = [other for other in logged if other["file"] == each["file"] and other["ns"] > each["ns"]]
            reads = [other for other in after if other["event"] == "reading"]
            told = [(read["pids"], read["use"]) for read in save["reads"]]
            assert told == [([read["pid"]], USES[read["role"]]) for read in reads]
            caches = ["cold" if save["step"] == DROPPED and not at else "warm" for at in range(len(reads))]
            assert [read["cache"] for read in save["reads"]] == caches
            starts = [(read["start_ns"], other["ns"]) for read, other in zip(save["reads"], reads, strict=True)]
            end = next((other for other in after if other["event"] in ("deleted", "saving")), None)
            gone = {"deleted": "deleted", "saving": "overwritten"}.get(end["event"] if end else "")
            assert save["gone"] == gone, each
            starts += [(save["saved_ns"], each["ns"]), *([(save["gone_ns"], end["ns"])] if end else [])]
            errors += [abs(one_ns - other_ns) / 1e9 for one_ns, other_ns in starts]
        record_property("figure", f"{one.level}: off by {max(errors):.2f} s at most")
        assert max(errors) < WITHIN_SECONDS
