"""What restarts cost a job that is killed at known times."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from recorder import Recorder, check_job

pytestmark = [pytest.mark.slow, pytest.mark.torch, pytest.mark.bpf]

JOB = Path(__file__).with_name("jobs") / "restarted.py"
AFTER = {"started": "started_ns", "restoring": "restoring_ns", "restored": "restored_ns", "resumed": "resumed_ns"}
FIELDS = {"saving": "saved_ns", "ended": "ended_ns", **AFTER}
WITHIN_SECONDS = 2.0


def test_each_phase_of_a_restart(recorder: Recorder, record_property: Callable[[str, object], None]) -> None:
    """From the save to the end, the next start, the restore and the first step, as the job logged them."""
    traced, polled = recorder.at("trace"), recorder.at("poll")
    truth = recorder.work / "truth.jsonl"
    check_job(traced.run_with([polled], sys.executable, str(JOB), str(recorder.work / "job"), str(truth)))

    logged = [json.loads(line) for line in truth.read_text().splitlines()]
    lives = [[one for one in logged if one["pid"] == pid] for pid in dict.fromkeys(one["pid"] for one in logged)]
    for one in (traced, polled):
        result = one.call("report", "--restarts", "--json", "--db", str(one.database))
        assert result.returncode == 0, result.stderr
        (job,) = json.loads(result.stdout)["jobs"]
        assert [each["step"] for each in job["restarts"]] == [80, 0, 160]
        for restart, life in zip(job["restarts"], lives[1:], strict=True):
            before = logged[: logged.index(life[0])]
            events = [each for each in before if each["event"] == "ended"]
            events += [each for each in before if each["event"] == "saving" and each["step"] == restart["step"]]
            events += [each for each in life if each["event"] in AFTER]
            at_ns = {each["event"]: each["ns"] for each in events}  # the last of each
            late = {name: (restart[FIELDS[name]] - ns) / 1e9 for name, ns in at_ns.items()}
            assert len(late) == (3 if restart["save"] is None else 6)
            record_property("figure", f"{one.level}, late: {', '.join(f'{k} {v:.2f} s' for k, v in late.items())}")
            assert all(abs(seconds) < WITHIN_SECONDS for seconds in late.values()), late
