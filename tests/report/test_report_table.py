"""The table and its way with space."""

from __future__ import annotations

from ckptprof.report.table import Cell, facts, lay_out, paint, render, wrap

ROWS = [[Cell("ID", "7", right=True), Cell("EXTRA", "extra", drop=1), Cell("PATH", "/a/long/path/file.pt", minimum=6)]]


def test_all_fits() -> None:
    """With room each column has what it needs, and no more."""
    assert lay_out(ROWS, 200) == {0: 2, 1: 5, 2: 20}


def test_flexible_columns_give_way_before_any_is_dropped() -> None:
    """Then the one that may be dropped goes, and what it had is given to the rest."""
    assert lay_out(ROWS, 20) == {0: 2, 1: 5, 2: 9}
    assert lay_out(ROWS, 16) == {0: 2, 2: 12}


def test_lines_keep_to_the_limit() -> None:
    """Right-aligned numbers, cut paths, no space at the end."""
    assert render(ROWS, 16, colour=False) == ["ID  PATH", " 7  …ath/file.pt"]
    assert render([], 16, colour=False) == []


def test_wrap_keeps_numbers_and_units_together() -> None:
    """A line never ends between 2 and min."""
    assert wrap("took 2 min 04 s at 12 MB/s", 15) == ["took 2 min 04 s", "at 12 MB/s"]
    assert wrap("took 2 min 04 s", 12) == ["took", "2 min 04 s"]


def test_facts_stand_under_each_other() -> None:
    """Keys to the left, wrapped texts in their own column."""
    lines = facts([("Key", "some words that do not fit"), ("K", "b")], 25, colour=False)

    assert lines == ["Key  some words that do", "     not fit", "K    b"]


def test_paint_only_when_told() -> None:
    """Two styles are one code."""
    assert paint("x", "bold red", colour=True) == "\x1b[1;91mx\x1b[0m"
    assert paint("x", "bold red", colour=False) == "x"
    assert paint("x", "", colour=True) == "x"


def test_what_is_never_cut_is_cut_before_a_line_is_too_long() -> None:
    """On a terminal that is narrower than all of it."""
    rows = [[Cell("DEVICE", "nvme0n1p12"), Cell("KIND", "block"), Cell("READ", "12.0 kB", right=True)]]

    assert max(map(len, render(rows, 20, colour=False))) <= 20


def test_a_path_goes_on_in_the_next_line() -> None:
    """After a slash if there is one near; one of thousands of characters is cut in its middle."""
    assert wrap("in /mnt/scratch/llama-7b/x.pt", 16) == ["in", "/mnt/scratch/", "llama-7b/x.pt"]
    assert wrap("a" * 20, 8) == ["a" * 8, "a" * 8, "a" * 4]
    assert [len(line) for line in wrap("/" + "d" * 4000, 40)] == [40, 40, 40, 40]
    assert wrap("", 8) == [""]


def test_texts_stand_below_their_keys_where_there_is_no_room_beside() -> None:
    """A key may be empty: its text goes on with the one above."""
    lines = facts([("A save blocks training", "1 min 02 s"), ("", "and more")], 40, colour=False)

    assert lines == ["A save blocks training", "  1 min 02 s", "  and more"]
