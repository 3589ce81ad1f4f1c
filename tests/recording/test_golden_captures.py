"""What is told of each capture is what was looked at before; CKPTPROF_UPDATE_GOLDEN=1 writes down what is told now."""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from datetime import timezone
from pathlib import Path

import msgspec
import pytest
from tests.diagnose.libraries import foreign
from tests.report.schemas import validate

from ckptprof.diagnose.losses import seconds_of
from ckptprof.model import Checkpoint, Mode
from ckptprof.recording import read_file
from ckptprof.report import show, terminal
from ckptprof.report.document import checkpoint_document, dump
from ckptprof.report.summary import without_copies
from ckptprof.service.commands.replaying import replay
from ckptprof.verdicts import Limit

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from labels import add, differences, read  # noqa: E402 - found by the line above
from onepage import BYTES, WIDTH, contradictions  # noqa: E402
from told import STREAMS, SUFFIX, captures, ordered, told  # noqa: E402

GOLDEN = HERE.parent / "golden" / "captures"
MAX_BYTES = 10_000_000
UPDATE = bool(os.environ.get("CKPTPROF_UPDATE_GOLDEN"))
LABELS = read()


@pytest.mark.parametrize("name", captures())
def test_the_same_is_told_as_before(name: str) -> None:
    """To the nanosecond, and no further from what the job logged: a replay is a function of recording and code."""
    golden, label = GOLDEN / f"{name}.txt", LABELS[name]
    replayed = replay(STREAMS / f"{name}{SUFFIX}", None)
    text = told(replayed)
    seen = [msgspec.to_builtins(one) for one in ordered(replayed.report.checkpoints) if one.kind.value != "copy"]
    for one in replayed.report.checkpoints:
        _holds(one)
    page = terminal.render(without_copies(replayed.report), width=WIDTH, colour=False, zone=timezone.utc)
    assert contradictions(page) == [], page
    if UPDATE:
        golden.write_text(text, encoding="utf-8")
    otherwise = differences(label, seen)
    if UPDATE and otherwise != label["told_otherwise"]:
        label["told_otherwise"] = otherwise
        add({name: label})

    assert {one["level"] for one in seen} <= {label.get("level", "poll")}
    assert otherwise == label["told_otherwise"]
    assert text == golden.read_text(encoding="utf-8")


def _holds(one: Checkpoint) -> None:
    """Hold what is told to its schema: timelines, blocked add up, a remedy is of its framework, gains have bounds.

    A rate is no more than the best second, or than all that was counted in the time of the checkpoint.
    """
    validate("show", json.loads(dump(checkpoint_document(one))))
    for width, most in ((80, 24), (200, 50)):
        assert len(show.brief(one, width=width, colour=False, zone=timezone.utc).splitlines()) <= most
    times = [edge for interval in one.blocked for edge in (interval.start_ns, interval.end_ns)]
    verdict = one.verdict

    assert times == sorted(set(times))
    assert not times or sum(times[1::2]) - sum(times[::2]) == one.stall_ns
    if verdict is None:
        return
    bars: dict[Limit | None, float] = {}
    for part in verdict.accounts:
        bars[part.limit] = bars.get(part.limit, 0.0) + part.seconds
    longest = max(bars, key=lambda one: bars[one], default=None)

    assert verdict.limit in (longest, Limit.NONE, Limit.UNCLEAR)
    if verdict.limit is Limit.NONE and verdict.seconds >= 1:  # its longest account says why nothing was slow
        fine = longest is Limit.NONE or one.cache == "warm" or one.mode is Mode.ASYNC
        assert fine or "the highest rate observed on this path" in verdict.sentence, verdict.sentence
    assert all(0 <= part.runnable_seconds <= part.seconds + 1e-9 for part in verdict.accounts)
    best = {device.device: max(device.shown_bytes_per_second or 0, device.peak_bytes_per_second or 0,
                               max(device.read_bytes, device.written_bytes) * 1e9 / (one.end_ns - one.start_ns))
            for device in (one.measures.devices if one.measures is not None else ())}  # fmt: skip
    for name, rate, unit in re.findall(r"waiting for (\S+) at ([\d.]+) ([kMGT]?B)/s", str(verdict.accounts)):
        assert float(rate) * BYTES[unit] <= 1.01 * best[name]
    assert verdict.remedy is None or not foreign(verdict.remedy, one.framework)
    own = seconds_of(verdict, verdict.limit)
    assert verdict.expected_seconds is None or verdict.seconds - own <= verdict.expected_seconds + 1e-6
    if verdict.alternative is not None:
        other = seconds_of(verdict, verdict.alternative.limit)
        assert verdict.seconds - other <= verdict.alternative.expected_seconds + 1e-6
    assert verdict.capped_by != verdict.limit.value
    assert one.stall_ns is not None or not any("before the first byte" in part.text for part in verdict.accounts)


@pytest.mark.parametrize("name", [name for name in captures() if name.removesuffix(".trace") == "short-of-cpu"])
def test_time_on_and_without_a_cpu_is_what_the_kernel_accounted(name: str) -> None:
    """Each within a tenth of the job's own schedstat; what copies into the page cache is on the CPU as well."""
    saves = ordered(replay(STREAMS / f"{name}{SUFFIX}", None).report.checkpoints)
    truths = LABELS[name]["truth"]

    assert [save.step for save in saves] == [truth["step"] for truth in truths]
    for save, truth in zip(saves, truths, strict=True):
        assert save.verdict is not None
        spent = Counter[Limit | None]()
        for part in save.verdict.accounts:
            spent[part.limit] += part.seconds - part.runnable_seconds
            spent[Limit.CPU] += part.runnable_seconds
        on_cpu = sum(spent[limit] for limit in (Limit.SERIALIZE, Limit.NONE, Limit.PAGE_CACHE))
        assert spent[Limit.CPU] == pytest.approx(truth["waited_ns"] / 1e9, rel=0.1)
        assert on_cpu == pytest.approx(truth["on_cpu_ns"] / 1e9, rel=0.1)
        assert save.verdict.seconds == pytest.approx(truth["held"], rel=0.1)


@pytest.mark.skipif(UPDATE, reason="the golden texts are being written")
def test_each_golden_text_is_of_a_capture() -> None:
    """One that is left of a capture long gone holds nothing."""
    assert sorted(path.name.removesuffix(".txt") for path in GOLDEN.iterdir()) == captures()


def test_replaying_twice_gives_the_same() -> None:
    """To the uid."""
    first, again = (replay(STREAMS / f"torch-dcp{SUFFIX}", None).report.checkpoints for _ in range(2))

    assert [one.uid for one in first] == [one.uid for one in again]


def test_the_corpus_is_small_and_says_where_it_comes_from() -> None:
    """Captures of real jobs, with kernel, date and command, and with nothing of the host in them."""
    assert sorted(LABELS) == captures()
    assert sum(file.stat().st_size for file in STREAMS.glob(f"*{SUFFIX}")) < MAX_BYTES
    assert all(label["kernel"] and label["date"] and label["command"] for label in LABELS.values())
    assert {read_file(STREAMS / f"{name}{SUFFIX}")[0].host for name in captures()} == {"recorded"}
