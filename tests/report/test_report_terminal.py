"""The report as it looks."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timezone
from typing import Any

import msgspec
import pytest

from ckptprof.model import LEFT_OUT, Checkpoint, Mode, Report, Watched
from ckptprof.report import rows, show, terminal
from ckptprof.report.clean import width as cells


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
@pytest.mark.parametrize("name", ["run", "host", "empty", "blank", "course", "copies", "limits", "fine"])
def test_report_looks_as_agreed(
    name: str, width: int, reports: dict[str, Report], zone: timezone, golden: Callable[[str, str], None]
) -> None:
    """The golden files are what was looked at and found clear; nothing is wider than the terminal."""
    text = terminal.render(reports[name], width=width, colour=False, zone=zone)

    if width in (80, 120, 200):
        golden(f"report/{name}-{width}.txt", text)
    assert max(cells(line) for line in text.splitlines()) <= width


@pytest.mark.parametrize("width", [80, 200])
def test_colour_changes_nothing_else(width: int, reports: dict[str, Report], zone: timezone) -> None:
    """Without its codes a coloured report is the plain one."""
    plain = terminal.render(reports["host"], width=width, colour=False, zone=zone)
    coloured = terminal.render(reports["host"], width=width, colour=True, zone=zone)

    assert "\x1b" not in plain
    assert coloured != plain
    assert plain == re.sub(r"\x1b\[[0-9;]*m", "", coloured)


def test_every_column_is_shown_where_there_is_room(reports: dict[str, Report], zone: timezone) -> None:
    """At 200 columns nothing is left out; the one job stands in the head of the report."""
    text = terminal.render(reports["course"], width=200, colour=False, zone=zone)
    header = next(line for line in text.splitlines() if line.startswith("ID"))

    assert header.split() == [
        "ID",
        "TIME",
        "KIND",
        "STEP",
        "DURATION",
        "MODE",
        "BLOCKED",
        "SIZE",
        "RATE",
        "PATTERN",
        "FILES",
        "PATH",
    ]


def test_less_sure_rows_are_marked(reports: dict[str, Report], zone: timezone) -> None:
    """A row of low confidence carries a mark, and the mark is explained."""
    text = terminal.render(reports["host"], width=80, colour=False, zone=zone)

    assert text.count("restore?") == 1
    assert "? after a kind: confidence" in text


def test_a_size_that_counts_bytes_twice_is_marked(make_checkpoint: Callable[..., Checkpoint], zone: timezone) -> None:
    """And the mark explained; a header that is written again is no copy."""
    twice = make_checkpoint(1, 0, bytes=200_000_000, unique_bytes=100_000_000)
    once = make_checkpoint(2, 60, bytes=200_000_000, unique_bytes=199_000_000)
    watched = Watched(start_ns=twice.start_ns, end_ns=once.end_ns)
    report = Report(host="h", watched=watched, checkpoints=(twice, once))
    text = terminal.render(report, width=80, colour=False, zone=zone)

    assert text.count("200 MB*") == 1
    assert "* after a size: some bytes were transferred more than once" in text


def test_incomplete_saves_stand_out(reports: dict[str, Report], zone: timezone) -> None:
    """By a plain word, in red where there is colour, and a sentence that says what it means."""
    text = terminal.render(reports["course"], width=80, colour=True, zone=zone)

    assert "\x1b[1;91mincomplete" in text
    assert "Incomplete saves were interrupted, never committed, or" in text
    assert "Saves     4 (1 incomplete)," in terminal.render(reports["course"], width=80, colour=False, zone=zone)


def test_modes_take_the_place_of_less_where_space_is_short(reports: dict[str, Report], zone: timezone) -> None:
    """The pattern first, then what size and duration tell, too; the stall stays."""
    headers = {}
    for name in ("course", "run"):
        for width in (60, 80):
            text = terminal.render(reports[name], width=width, colour=False, zone=zone)
            headers[name, width] = next(line for line in text.splitlines() if line.startswith("ID")).split()

    assert headers["course", 80] == ["ID", "TIME", "KIND", "STEP", "DURATION", "MODE", "BLOCKED", "SIZE", "PATH"]
    assert {"BLOCKED", "PATH"} < set(headers["course", 60])
    assert headers["run", 80] == ["ID", "TIME", "KIND", "STEP", "DURATION", "SIZE", "RATE", "PATH"]


def test_whose_a_row_is_stays_where_there_are_several(
    make_checkpoint: Callable[..., Checkpoint], zone: timezone
) -> None:
    """The names above the table do not tell; of a single job they do."""
    rows = tuple(
        make_checkpoint(n, n * 100, job=f"train-{n % 2}.py-77", mode=Mode.SYNC, stall_ns=10**9) for n in range(4)
    )
    for width, jobs in ((80, 2), (120, 2), (120, 1)):
        report = Report(host="h", watched=Watched(start_ns=None, end_ns=None), checkpoints=rows[:: 3 - jobs])
        text = terminal.render(report, width=width, colour=False, zone=zone)
        (header,) = (line.split() for line in text.splitlines() if line.startswith("ID "))

        assert ("JOB" in header) is (jobs > 1)
        assert "PATH" in header


def test_copies_that_were_left_out_are_counted(reports: dict[str, Report], zone: timezone) -> None:
    """With the words that list them; asked for, they have a line of their own and no share of the time."""
    text = terminal.render(reports["course"], width=200, colour=False, zone=zone, copies="--kind copy lists them")
    copies = terminal.render(reports["copies"], width=200, colour=False, zone=zone)
    alone = msgspec.structs.replace(reports["empty"], copies_left_out=1)

    assert "3 copies of checkpoint files are not shown: --kind copy lists them." in text
    assert re.search(r"^Copies +3, 3.00 GB", copies, re.MULTILINE)
    assert "Share" not in copies
    assert "only 1 copy. --kind copy lists them." in terminal.render(alone, width=200, colour=False, zone=zone)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, ("Found no checkpoint. `ckptprof doctor` shows what ckptprof can monitor on this host.\n")),
        ({"copies_left_out": 1}, "Found no save or restore, only 1 copy. `ckptprof report --kind copy` lists them.\n"),
        (
            {"watched": Watched(start_ns=None, end_ns=None)},
            (
                "Nothing was recorded: the command was not monitored. "
                "`ckptprof doctor` shows what ckptprof can monitor on this host.\n"
            ),
        ),
    ],
)
def test_a_run_without_checkpoints(
    changes: dict[str, Any], told: str, reports: dict[str, Report], zone: timezone
) -> None:
    """It was asked nothing, so no option is named that could be loosened."""
    report = msgspec.structs.replace(reports["empty"], **changes)
    text = terminal.render(report, width=200, colour=False, zone=zone, empty=terminal.explain_empty_run)

    assert text.endswith(told)


def test_rows_are_in_the_order_of_time(make_checkpoint: Callable[..., Checkpoint], zone: timezone) -> None:
    """Whatever order they come in."""
    late, early = make_checkpoint(1, 100), make_checkpoint(2, 5)
    report = Report(host="h", watched=Watched(start_ns=None, end_ns=None), checkpoints=(late, early))
    text = terminal.render(report, width=200, colour=False, zone=zone)

    assert text.index("step_000200.pt") < text.index("step_000100.pt")


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["/a/b/x.pt", "/a/b/y.pt"], "/a/b/"),
        (["/a/b/x.pt", "/a/b/x.pt"], "/a/b/"),
        (["/a/run1/x", "/a/run12/x"], "/a/"),
        (["/a/b", "/a/b/c"], "/a/"),
        (["/x", "/y"], None),
        (["/a/x"], None),
        (["a/x", "a/y"], None),
        ([], None),
    ],
)
def test_common_folder(paths: list[str], expected: str | None) -> None:
    """The folder is one that really holds all of them."""
    assert expected == rows.common_folder(paths)


def test_a_report_of_thousands_is_complete(make_checkpoint: Callable[..., Checkpoint], zone: timezone) -> None:
    """Each checkpoint has its line, if all are asked for."""
    many = tuple(make_checkpoint(n, n * 10) for n in range(1, 2001))
    report = Report(host="h", watched=Watched(start_ns=0, end_ns=many[-1].end_ns), checkpoints=many)
    text = terminal.render(report, width=80, colour=False, zone=zone, whole=True)

    assert len(re.findall(r"^ *\d+  .*step_\d{6}(?:\.pt)?$", text, re.MULTILINE)) == 2000
    assert text.count("/run-0042/") == 1  # where the folder is named
    assert "--all" not in text


def test_a_path_that_is_cut_keeps_what_differs(make_checkpoint: Callable[..., Checkpoint], zone: timezone) -> None:
    """What all paths have in common, at their start and end, is named once below."""
    paths = (("/d/run/ckpt_00000507.safetensors", "…pt_00000507"), ("/d/run/v1.5/x", "v1.5/x"))
    for first, shown in paths:
        several = tuple(
            make_checkpoint(n, n * 10, path=path, stall_ns=10**9, mode=Mode.SYNC)
            for n, path in enumerate((first, "/d/run/ckpt_00000508.safetensors"), start=1)
        )
        report = Report(host="h", watched=Watched(start_ns=0, end_ns=several[-1].end_ns), checkpoints=several)
        lines = terminal.render(report, width=75, colour=False, zone=zone).splitlines()

        assert next(line for line in lines if line.startswith(" 1 ")).endswith(f" {shown}")
        is_alike = first.endswith(".safetensors")
        assert f"Paths are in  /d/run/{', and end in .safetensors' * is_alike}" in lines
        wide = terminal.render(report, width=119, colour=False, zone=zone)
        assert f" {first.removeprefix('/d/run/')}\n" in wide, "whole names where they fit"


def test_of_many_the_worst_and_the_last_are_told(make_checkpoint: Callable[..., Checkpoint], zone: timezone) -> None:
    """Each ten under a title; the picture has all of them, and a line says how to see all."""
    slow = {n: 10**9 * n for n in range(20, 30)}
    many = tuple(make_checkpoint(n, n * 100, stall_ns=slow.get(n, 10**9), mode=Mode.SYNC) for n in range(1, 1001))
    report = Report(host="h", watched=Watched(start_ns=0, end_ns=many[-1].end_ns), checkpoints=many)
    for width in (40, 80, 300):
        text = terminal.render(report, width=width, colour=False, zone=zone)
        lines = text.splitlines()
        first, second = lines.index("The 10 that blocked training longest"), lines.index("The last 10 of 1,000")

        assert [int(line.split()[0]) for line in lines[first + 2 : first + 12]] == list(reversed(slow))
        assert [int(line.split()[0]) for line in lines[second + 2 : second + 12]] == list(range(991, 1001))
        assert "`ckptprof report --all`" in " ".join(text.split())


def test_what_took_much_longer_than_usual_has_a_mark(
    make_checkpoint: Callable[..., Checkpoint], zone: timezone
) -> None:
    """In red, with its stall; a little longer has none, and a job of two saves has nothing that is usual."""
    took = {1: 4.0, 2: 4.1, 3: 4.0, 4: 5.6, 5: 9.0}
    saves = tuple(
        msgspec.structs.replace(one, end_ns=one.start_ns + int(took[n] * 1e9), stall_ns=int(took[n] * 1e9))
        for n in took
        for one in (make_checkpoint(n, n * 100),)
    )
    report = Report(host="h", watched=Watched(start_ns=None, end_ns=None), checkpoints=saves)
    text = terminal.render(report, width=80, colour=True, zone=zone)
    few = terminal.render(msgspec.structs.replace(report, checkpoints=saves[3:]), width=80, colour=False, zone=zone)

    assert "\x1b[1;91m 9.00 s!\x1b[0m" in text
    assert "\x1b[1;91m 9.00 s\x1b[0m" in text
    assert "    5.60 s  " in text
    assert "!" not in few


@pytest.mark.parametrize("width", [20, 21, 24, 30, 37, 40, 79, 80, 120, 199, 300])
@pytest.mark.parametrize("kind", ["one", "nameless", "empty-files", "ten-thousand"])
def test_odd_input_is_told_at_any_width(
    kind: str, width: int, make_checkpoint: Callable[..., Checkpoint], zone: timezone
) -> None:
    """Nothing is wider than the terminal, and a job without a name is said to have none."""
    changes: dict[str, dict[str, Any]] = {
        "nameless": {"job": "", "path": None, "framework": None, "step": None, "writers": ()},
        "empty-files": {"bytes": 0, "files": 0, "writers": ()},
        "ten-thousand": {"mode": Mode.SYNC, "stall_ns": 4 * 10**9},
    }
    number = {"one": 1, "ten-thousand": 10_000}.get(kind, 3)
    saves = tuple(make_checkpoint(n, n * 60, **changes.get(kind, {})) for n in range(1, number + 1))
    report = Report(host="", watched=Watched(start_ns=0, end_ns=saves[-1].end_ns), checkpoints=saves)
    text = terminal.render(report, width=width, colour=False, zone=zone)
    pages = [text, *(tell(saves[0], width=width, colour=False, zone=zone) for tell in (show.brief, show.render))]

    assert [line for page in pages for line in page.splitlines() if cells(line) > width] == []
    assert all(("(no name)" in page) is (kind == "nameless") for page in pages)


def test_what_the_budget_left_out_comes_before_the_answer(reports: dict[str, Report], zone: timezone) -> None:
    """With the number of checkpoints that it concerns."""
    report = reports["run"]
    first, *others = report.checkpoints
    cut = msgspec.structs.replace(first, limitations=(*first.limitations, f"stacks: {LEFT_OUT}"))
    changed = msgspec.structs.replace(report, checkpoints=(cut, *others))

    text = terminal.render(changed, width=120, colour=False, zone=zone)

    assert text.startswith("Left out  samples of 1 of 5 checkpoints, to keep the CPU budget")
