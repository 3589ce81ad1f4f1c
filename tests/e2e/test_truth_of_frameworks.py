"""For real frameworks, what ckptprof reports is what the training script logged itself: at both levels of sight."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from framework_jobs import edge_share
from recorder import Recorder, check_job

from truth import Comparison, Row, compare, read_log, table

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("live")]

SIZE_MB = "280"


@dataclass(frozen=True)
class Promise:
    """How near a report comes to the truth."""

    edge_share: float
    worst_bytes_percent: float
    words: tuple[str, ...]  # one of them stands in what is out of sight if the order of a restore was not seen


PROMISES = {
    "poll": Promise(0.25, 2, ("fault", "map", "too few looks")),
    "trace": Promise(0.1, 0.5, ("fault", "map")),
}
FORMATS = [  # the captures example-* hold the others
    pytest.param("numpy", "npz", "poll", "trace", id="numpy-savez"),
    pytest.param("numpy", "npy", "trace", "poll", id="numpy-save"),
    pytest.param("torch", "torch", "poll", "trace", id="torch-save", marks=pytest.mark.torch),
    pytest.param("torch", "safetensors", "trace", "poll", id="safetensors-torch", marks=pytest.mark.torch),
]
SWAPPED = [
    pytest.param(*one.values[:2], *reversed(one.values[2:]), id=f"{one.id}-swapped", marks=one.marks) for one in FORMATS
]
CASES = [*FORMATS, *(SWAPPED if os.environ.get("CKPTPROF_JOBS") == "all" else [])]


def train_and_restart(recorder: Recorder, framework: str, format_: str) -> None:
    """Save three times; restart without the files in memory, restore, save once more."""
    job = recorder.example(f"train_{framework}.py", "--format", format_, "--size-mb", SIZE_MB)
    job += ["--truth", str(recorder.work / "truth.jsonl"), "--interval", "1.5"]
    result = recorder.run(*recorder.restarted([*job, "--saves", "3"], [*job, "--saves", "1", "--resume"]))
    check_job(result)


def hold_to_promise(comparison: Comparison, how: str, level: str) -> None:
    """Assert everything that is promised of a report at this level."""
    promise, who = PROMISES[level], f"{how} {level}:\n{table(comparison)}"
    assert (comparison.of("missed"), comparison.of("invented")) == ([], []), who
    assert len(comparison.of("found")) == 5, who
    for row in comparison.of("found"):
        assert bytes_are_right(row, promise), (who, row.seen["blind"])
    assert edge_share(comparison.rows) <= promise.edge_share, who
    for row in comparison.rows:
        assert row.seen["level"] == level, who
        assert class_is_right(row, promise), (who, row.seen["pattern"], row.seen["blind"])
        assert row.seen["step"] in (row.truth.step, None), who
        assert Path(row.truth.path) == Path(row.seen["path"]), who


def bytes_are_right(row: Row, promise: Promise) -> bool:
    """Tell whether the bytes are those of the log, or owned up to be less, of a polled restore that was short.

    A file that is open for some hundredths of a second may be missed: then its reader's counters tell of more.
    """
    if row.truth.kind == "restore" and row.seen["level"] == "poll" and row.bytes_error_percent < 0:
        owned_up = any("of what was read" in blind for blind in row.seen["blind"])
        return owned_up or abs(row.bytes_error_percent) <= promise.worst_bytes_percent
    return abs(row.bytes_error_percent) <= promise.worst_bytes_percent


def class_is_right(row: Row, promise: Promise) -> bool:
    """Tell whether the class is sequential-large, or, of a restore, owned up to be unknown.

    A restore by page faults has no order to be seen; when polled, another that was over within a few looks says that.
    """
    if row.truth.kind == "restore" and row.pattern_class is None:
        return any(word in blind for word in promise.words for blind in row.seen["blind"])
    return row.pattern_class == "sequential-large"


def figure(how: str, level: str, framework: str, format_: str, comparison: Comparison) -> str:
    """Return the line that the summary of the test run shows."""
    counts = "/".join(str(len(comparison.of(verdict))) for verdict in ("found", "missed", "invented"))
    edge, size = comparison.median_edge_error_ms, comparison.worst_bytes_error_percent
    numbers = "nothing found" if edge is None else f"edges {edge:.0f} ms (median), bytes {size:.2f} % (worst)"
    return f"{how:5} {level:5} {framework:5} {format_:11} {counts} found/missed/invented, {numbers}"


@pytest.mark.root
@pytest.mark.bpf
@pytest.mark.parametrize(("framework", "format_", "run_level", "agent_level"), CASES)
def test_run_and_agent_report_what_the_job_logged(
    recorder: Recorder,
    record_property: Callable[[str, object], None],
    framework: str,
    format_: str,
    *,
    run_level: str,
    agent_level: str,
) -> None:
    """`run` tells every save and restore of one job, and nothing else; so does an agent that was told of no job.

    They look beside each other: one of them by trace, the other, as who is not root has it, by polling.
    """
    run, agent = recorder.at(run_level), recorder.at(agent_level)
    with agent.agent():
        train_and_restart(run, framework, format_)
    truth = read_log(recorder.work / "truth.jsonl")

    for how, seen in (("run", run), ("agent", agent)):
        comparison = compare(truth, seen.checkpoints())
        record_property("figure", figure(how, seen.level, framework, format_, comparison))
        hold_to_promise(comparison, how, seen.level)
