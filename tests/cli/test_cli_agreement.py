"""What report, list, show, diff, plan and --fail-on say of the same saves: one figure has one value under each name."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from ckptprof import units
from ckptprof.cli.main import main
from ckptprof.diagnose.diagnosis import diagnose
from ckptprof.model import Checkpoint, Evidence, Kind, Level, Mode, Pattern, PatternClass, Session, Status
from ckptprof.store.writer import StoreWriter

SECOND = 1_000_000_000
# seconds that a save took, seconds that it blocked training, bytes; the last one was broken off
SAVES = ((10, 8, 1e9), (13, 9, 2e9), (20, None, 1e9), (30, 21, 5e9), (50, 1, 3e8))
COMPLETE = SAVES[:-1]
DURATION = median(took for took, _, _ in COMPLETE)
STALL = median(held for _, held, _ in COMPLETE if held is not None)
LOST = sum(held for _, held, _ in SAVES if held is not None)
RATE = median(moved / took for took, _, moved in COMPLETE)
SIZE = median(moved for _, _, moved in COMPLETE)
APART = 100
SENTENCE = Evidence(name="rate", weight=1.0, text="104 MB came at 187 MB/s")
Told = Callable[..., str]


def _save(number: int, start_ns: int, **changes: object) -> Checkpoint:
    took, held, moved = SAVES[number % len(SAVES)]
    values: dict[str, object] = {
        "uid": f"uid-{number}", "kind": Kind.SAVE, "job": "train", "framework": "torch.save", "step": number,
        "ranks": 1, "start_ns": start_ns, "end_ns": start_ns + took * SECOND, "bytes": int(moved), "files": 1,
        "path": f"/ckpt/{number}.pt", "writers": (), "pattern": Pattern(class_=PatternClass.SEQUENTIAL_LARGE),
        "level": Level.POLL, "limitations": (), "evidence": (SENTENCE,),
        "confidence": 0.9, "mode": Mode.ASYNC,
        "stall_ns": None if held is None else held * SECOND,
        "status": Status.INCOMPLETE if number % len(SAVES) == len(SAVES) - 1 else Status.COMPLETE,
    }  # fmt: skip
    return Checkpoint(**(values | changes))  # type: ignore[arg-type]  # checked by name at run time


def _database(path: Path, saves: list[Checkpoint]) -> str:
    writer = StoreWriter(path, ballast_bytes=0)
    begin_ns, end_ns = saves[0].start_ns - SECOND, max(one.end_ns for one in saves) + SECOND
    writer.start_session(
        Session(
            uid="s", host="node-1", boot_id="b", kernel="6.1", version="0", level="poll", start_ns=begin_ns,
            end_ns=end_ns, clean=True,
        )
    )  # fmt: skip
    writer.add_checkpoints([diagnose(one, saves) for one in saves])
    writer.close()
    return str(path)


def _begin_ns() -> int:
    return time.time_ns() // SECOND * SECOND - 3600 * SECOND


@pytest.fixture
def db(tmp_path: Path) -> str:
    """Return a database with the saves."""
    return _database(tmp_path / "one.db", [_save(n, _begin_ns() + n * APART * SECOND) for n in range(len(SAVES))])


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Told:
    """Return a runner of a command that gives its stdout, its spaces single."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*arguments: str) -> str:
        main(list(arguments))
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return out + err

    return run


def _document(told: Told, *arguments: str) -> Any:
    return json.loads(told(*arguments, "--json"))


def test_documents_agree(db: str, told: Told) -> None:
    """Of the same saves: the median of duration, stall, rate and size, the interval, and what training lost."""
    report, plan = _document(told, "report", "--db", db), _document(told, "plan", "--mttf", "3h", "--db", db)
    figures = {one["name"]: one for one in _document(told, "diff", db, db)["kinds"][0]["figures"]}
    (job,) = report["jobs"]
    shown = [_document(told, "show", str(one["id"]), "--db", db)["checkpoint"] for one in report["checkpoints"]]

    medians = {name: {one[side]["median"] for side in ("before", "after")} for name, one in figures.items()}
    assert medians == {"duration": {DURATION}, "stall": {STALL}, "size": {SIZE}, "throughput": {RATE}}
    assert plan["basis"]["duration_seconds"]["value"] == DURATION
    assert plan["basis"]["cost_seconds"]["value"] == STALL
    assert plan["basis"]["size_bytes"]["value"] == SIZE
    assert plan["traffic"]["measured_bytes_per_second"] == job["saves"]["bytes_per_second"] == RATE
    assert plan["basis"]["interval_today_seconds"]["value"] == job["interval_seconds"] == APART
    assert job["stall_seconds"] == job["saves"]["stall_seconds"] == LOST
    assert job["saves"]["max_seconds"] == max(took for took, _, _ in COMPLETE)
    assert plan["saves"] == figures["duration"]["before"]["number"] == len(COMPLETE)
    for one, other in zip(report["checkpoints"], shown, strict=True):
        assert {name: one[name] for name in ("start_ns", "end_ns", "bytes", "stall_ns", "cost")} == {
            name: other[name] for name in ("start_ns", "end_ns", "bytes", "stall_ns", "cost")
        }


def test_texts_agree(db: str, told: Told) -> None:
    """The same values, written the same way."""
    report, plan = told("report", "--db", db), " ".join(told("plan", "--mttf", "3h", "--db", db).split())
    diff = {" ".join(line.split()[:2]): line.split() for line in told("diff", db, db).splitlines() if "median" in line}
    duration, stall, rate = units.seconds(DURATION), units.seconds(STALL), units.rate(RATE)

    assert re.search(rf"Duration +\S+ +median {re.escape(duration)}", report)
    assert f"(measured: median duration of {len(COMPLETE)} saves)" in plan
    assert f"Save written after {duration}" in plan
    assert f"Save blocks training {stall} (measured: median stall of 3 of 4 saves)" in plan
    assert f"Checkpoint size {units.size(SIZE)} (measured" in plan
    assert f"median rate {rate}" in report
    assert f"Now {rate}, median rate of the saves" in plan
    assert f"a median of {units.seconds(APART)} apart" in report
    assert f"Today every {units.seconds(APART)} (measured" in plan
    assert f"{units.seconds(LOST)} (4 of 5 saves measured)" in report
    assert re.search(rf"Blocked +{re.escape(units.seconds(LOST))}, [0-9.]+ % of a run of ", report)
    assert " ".join(diff["duration median"][2:6]) == f"{duration} {duration}"
    assert " ".join(diff["blocked median"][2:6]) == f"{stall} {stall}"
    assert " ".join(diff["rate median"][2:6]) == f"{rate} {rate}"
    assert f"{duration}" in told("report", "--db", db, "--fail-on", "save_median>1s").splitlines()[-1]
    assert f"{rate}" in told("report", "--db", db, "--fail-on", "save_throughput_median>1MB/s").splitlines()[-1]


def test_each_save_is_told_alike(db: str, told: Told) -> None:
    """Duration, size and rate of one save in list, report and show."""
    rows = [line.split("\t") for line in told("list", "--db", db).splitlines()]
    report = told("report", "--db", db)
    for (took, _, moved), row in zip(SAVES, rows, strict=True):
        pages = [" ".join(told("show", row[0], *whole, "--db", db).split()) for whole in ([], ["--all"])]

        assert (float(row[3]), int(row[4])) == (took, moved)
        each = f"{units.size(moved)} in 1 file in {units.seconds(took)}, {units.rate(moved / took)}"
        assert all(each in page for page in pages)
        assert re.search(rf"{units.seconds(took)}.*{units.size(moved)} +{units.rate(moved / took)}", report)


def test_a_change_is_that_of_the_medians_beside_it(tmp_path: Path, told: Told) -> None:
    """Whatever the saves: the sign of the change, its word and the interval never contradict before and after."""
    sides = []
    for name, stalls in (("before", (1, 9, 10, 11, 12)), ("after", (2, 2, 10.5, 3, 30))):
        saves = [
            _save(n * len(SAVES), _begin_ns() + n * APART * SECOND, stall_ns=int(held * SECOND))
            for n, held in enumerate(stalls)
        ]
        sides.append(_database(tmp_path / f"{name}.db", saves))
    stall = next(one for one in _document(told, "diff", *sides)["kinds"][0]["figures"] if one["name"] == "stall")

    assert (stall["before"]["median"], stall["after"]["median"]) == (10, 3)
    assert stall["change"]["estimate"] == -7
    assert stall["relative"]["estimate"] == pytest.approx(-0.7)
    assert stall["change"]["low"] <= stall["change"]["estimate"] <= stall["change"]["high"]
    assert stall["outcome"] in ("noise", "shorter")
    assert "-70 %" in told("diff", *sides)


def test_one_system_of_units(db: str, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is printed is decimal, or all of it binary; documents are in bytes and do not change."""
    commands = (
        ["report", "--db", db],
        ["show", "4", "--db", db],
        ["plan", "--mttf", "3h", "--db", db],
        ["diff", db, db],
    )
    decimal, binary = re.compile(r"\d [kMGTPE]B\b"), re.compile(r"\d [KMGTPE]iB\b")
    plain = _document(told, "report", "--db", db)
    for command in commands:
        text = told(*command)
        assert decimal.search(text)
        assert not binary.search(text)
    monkeypatch.setenv("CKPTPROF_UNITS", "binary")
    try:
        for command in commands:
            text = told(*command)
            assert binary.search(text)
            assert not decimal.search(text)
        assert _document(told, "report", "--db", db) == plain
        monkeypatch.setenv("CKPTPROF_UNITS", "metric")
        assert "CKPTPROF_UNITS='metric' is not a system of units" in told("report", "--db", db)
        assert main(["report", "--db", db]) == 2
    finally:
        units.choose("decimal")


@pytest.mark.parametrize("number", [1, 2, 3])
def test_plan_says_what_is_missing(number: int, tmp_path: Path, told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    """Short saves of a demo, whose stall was not seen, on one GPU: no interval of 103 days, in no form; 3 is told."""
    saves = [
        _save(n * len(SAVES), _begin_ns() + n * SECOND, stall_ns=None, bytes=358, end_ns=_begin_ns() + (n + 1) * SECOND)
        for n in range(number)
    ]
    db = _database(tmp_path / "demo.db", saves)
    text, body = told("plan", "--db", db), _document(told, "plan", "--db", db)

    assert text.startswith("Save every  unknown: ")
    assert "give --cost" in text
    assert not re.search(r"Rules|Storage|Today|\d d \d\d h\n", text)
    assert (body["advice"], body["traffic"], body["rules"]) == (None, None, [])
    assert body["missing"] in text
    assert main(["plan", "--db", db]) == 3
    assert main(["plan", "--db", db, "--cost", "2s", "--mttf", "3h"]) == 0
    capsys.readouterr()


@pytest.mark.parametrize("seen", [(), (0,), (0, 1)])
def test_the_answer_follows_from_what_was_seen(seen: tuple[int, ...], tmp_path: Path, told: Told) -> None:
    """A loss is told of stalls that were seen; without any, how long checkpoints took, and that it is not known."""
    saves = [
        _save(n * len(SAVES), _begin_ns() + n * APART * SECOND, mode=Mode.SYNC if seen else None,
              stall_ns=10 * SECOND if n in seen else None)
        for n in range(2)
    ]  # fmt: skip
    report = " ".join(told("report", "--db", _database(tmp_path / "seen.db", saves)).split())
    (answer,) = re.findall(r"Answer (.*?)Run ", report)

    assert ("training was blocked for " in answer) == bool(seen)
    assert ("20.0 s in total; how long training was blocked is not known" in answer) == (not seen)
    assert ("(1 checkpoint not measured)" in answer) == (len(seen) == 1)
    assert ("how long training was blocked is not known" in report) == (not seen)
    lost = units.seconds(10 * len(seen))
    assert not seen or (f"blocked for {lost}" in answer and f"Blocked {lost}" in report)
