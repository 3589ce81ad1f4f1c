"""One word, one figure: what several commands tell of the same saves is the same, in text and in JSON."""

from __future__ import annotations

import json
import re
import statistics
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ckptprof import units
from ckptprof.cli.main import main
from ckptprof.diagnose.judging import diagnose
from ckptprof.model import Checkpoint, Kind, Level, Mode, Pattern, Session
from ckptprof.store.writer import StoreWriter

SECOND = 1_000_000_000
START_NS = 1_790_000_000 * SECOND
SECONDS = (23.7, 29.5, 21.4, 61.0)  # an even number, for then the median is none of them
BYTES = (9_100_000_000, 9_100_000_000, 9_300_000_000, 9_000_000_000)


def store(path: Path, durations_seconds: tuple[float, ...]) -> str:
    """Write sync saves of one job into a new database; returns its path."""
    with closing(StoreWriter(path, ballast_bytes=0)) as writer:
        writer.begin_session(
            Session(
                uid="s", host="node-1", boot_id="b", kernel="6.1", version="0", level="trace", start_ns=START_NS,
                end_ns=START_NS + 900 * SECOND, clean=True,
            )
        )  # fmt: skip
        for number, (seconds, size) in enumerate(zip(durations_seconds, BYTES, strict=True)):
            start_ns, spent_ns = START_NS + number * 200 * SECOND, int(seconds * SECOND)
            one = Checkpoint(
                uid=str(number), kind=Kind.SAVE, job="llm", framework="torch.save", step=number, ranks=1,
                start_ns=start_ns, end_ns=start_ns + spent_ns, bytes=size, files=1, path=f"/c/{number}.pt", writers=(),
                pattern=Pattern(class_=None), level=Level.TRACE, blind=(), evidence=(), confidence=0.9, mode=Mode.SYNC,
                stall_ns=spent_ns,
            )  # fmt: skip
            writer.add_checkpoints([diagnose(one)])
    return str(path)


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a database of four saves of one job, of which no two are alike; lines are wide enough not to wrap."""
    monkeypatch.setenv("COLUMNS", "200")
    return store(tmp_path / "saves.db", SECONDS)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return what a command prints."""
    assert main([*arguments]) in (0, None)
    return capsys.readouterr().out


def test_the_medians_of_a_series_are_the_same_everywhere(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Of duration, stall, size and rate: in report, its costs, diff, plan, and what --fail-on asks."""
    duration = statistics.median(SECONDS)
    size = statistics.median(BYTES)
    rate = statistics.median(size / seconds for size, seconds in zip(BYTES, SECONDS, strict=True))
    report, plan = printed(capsys, "report", "--db", db), printed(capsys, "plan", "--db", db)
    diff = printed(capsys, "diff", db, db)
    told: dict[str, Any] = {
        name: json.loads(printed(capsys, name, "--json", "--db", db)) for name in ("report", "plan")
    }
    figures = {
        one["name"]: one["before"]
        for one in json.loads(printed(capsys, "diff", "--json", db, db))["kinds"][0]["figures"]
    }

    shown = units.seconds(duration)
    assert f"duration median {shown}" in report
    assert re.search(rf"duration median +{shown} +{shown}", diff)
    assert re.search(rf"It is written after +{shown} \(measured: median duration of 4 saves\)", plan)
    assert re.search(rf"stall median +{shown} +{shown}", diff)
    assert re.search(rf"A save blocks training +{shown} \(measured: median stall of 4 saves\)", plan)
    assert f"median rate {units.rate(rate)}" in report
    assert re.search(rf"rate median +{units.rate(rate)} +{units.rate(rate)}", diff)
    assert re.search(rf"A checkpoint +{units.size(size)} \(measured: median of 4 saves\)", plan)
    assert re.search(rf"size median +{units.size(size)} ", diff)
    assert told["report"]["jobs"][0]["saves"]["bytes_per_second"] == pytest.approx(rate)
    assert told["plan"]["basis"]["duration_seconds"]["value"] == pytest.approx(duration)
    assert told["plan"]["basis"]["cost_seconds"]["value"] == pytest.approx(duration)
    assert [figures[name]["median"] for name in ("duration", "stall", "size", "throughput")] == pytest.approx(
        [duration, duration, size, rate]
    )
    assert main(["report", "--db", db, "--fail-on", f"duration_median>{duration - 0.001}s"]) == 7
    assert main(["report", "--db", db, "--fail-on", f"duration_median>{duration + 0.001}s"]) == 0
    capsys.readouterr()


def test_one_checkpoint_is_the_same_in_each_command(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Its duration, size and rate: in the table of report, in show, and in list."""
    seconds, size = SECONDS[1], BYTES[1]
    row = next(line for line in printed(capsys, "report", "--db", db).splitlines() if re.match(r" +2 ", line))
    show = printed(capsys, "show", "2", "--db", db)
    line = printed(capsys, "list", "--db", db).splitlines()[1].split("\t")

    for text in (units.seconds(seconds), units.size(size), units.rate(size / seconds)):
        assert text in row
        assert text in show
    assert (float(line[3]), int(line[4])) == (pytest.approx(seconds, abs=0.001), size)


def test_what_rose_did_not_fall(db: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The change that diff tells is the one between the two medians that stand beside it."""
    after = store(tmp_path / "after.db", (1.0, 50.0, 51.0, 52.0))
    one = json.loads(printed(capsys, "diff", "--json", db, after))["kinds"][0]["figures"][0]

    assert one["change"]["estimate"] == pytest.approx(one["after"]["median"] - one["before"]["median"])
    assert one["relative"]["estimate"] == pytest.approx(one["after"]["median"] / one["before"]["median"] - 1)
