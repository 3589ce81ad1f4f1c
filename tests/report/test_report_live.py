"""The screen of `ckptprof live` as it looks, at every size."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timezone
from itertools import pairwise

import msgspec
import pytest
from tests.report.conftest import checkpoint
from tests.report.live_states import LATELY, STATES, busy, hostile, stopped

from ckptprof.model import Kind, Point, Status, Writer
from ckptprof.report.clean import width as cells
from ckptprof.report.live.frame import ScreenOptions, frame
from ckptprof.report.live.state import underway, with_usual_bytes

SIZES = [(20, 24), (60, 20), (80, 24), (160, 50)]


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("name", ["busy", "stopped", "blank"])
def test_the_screen_looks_as_agreed(
    name: str, width: int, height: int, zone: timezone, golden: Callable[[str, str], None]
) -> None:
    """The golden files are what was looked at and found clear."""
    lines = frame(STATES[name](), ScreenOptions(width, height, zone, chosen="uid-10", recent=LATELY))

    golden(f"live/{name}-{width}x{height}.txt", "\n".join([*lines, ""]))


def test_the_screen_without_unicode(zone: timezone, golden: Callable[[str, str], None]) -> None:
    """Each line is ASCII, and the names are escaped."""
    lines = frame(busy(), ScreenOptions(80, 24, zone, chosen="uid-10", unicode=False, recent=LATELY))

    golden("live/busy-80x24-ascii.txt", "\n".join([*lines, ""]))
    assert "\n".join([*lines, *frame(hostile(), ScreenOptions(80, 24, zone, unicode=False))]).isascii()


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize(("width", "height"), [(1, 1), (20, 3), (40, 8), *SIZES, (400, 100)])
@pytest.mark.parametrize("unicode", [True, False])
def test_nothing_leaves_the_screen(name: str, width: int, height: int, zone: timezone, *, unicode: bool) -> None:
    """Whatever the names are: no line is longer than the screen, there are no more of them, no code reaches it."""
    lines = frame(STATES[name](), ScreenOptions(width, height, zone, unicode=unicode))

    assert len(lines) <= height
    assert max((cells(line) for line in lines), default=0) <= max(width, 3)
    assert all(char.isprintable() for line in lines for char in line)


@pytest.mark.parametrize("name", STATES)
def test_colour_changes_nothing_else(name: str, zone: timezone) -> None:
    """Without its codes a coloured screen is the plain one."""
    plain, coloured = (
        frame(STATES[name](), ScreenOptions(80, 24, zone, chosen="uid-10", colour=on)) for on in (False, True)
    )

    assert coloured != plain
    assert plain == [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in coloured]


def test_the_chosen_one_is_always_on_the_screen(zone: timezone) -> None:
    """Also the oldest of more than there is room for."""
    for one in busy().last:
        marked = [line for line in frame(busy(), ScreenOptions(80, 24, zone, chosen=one.uid)) if line.startswith(">")]

        assert [line.split()[1] for line in marked] == [str(one.id)]


def test_outliers_without_a_line_are_named(zone: timezone) -> None:
    """Where there is no room for all checkpoints; the oldest is one of them."""
    state = msgspec.structs.replace(busy(), last=tuple(reversed(busy().last)), underway=(), devices=())
    lines = frame(state, ScreenOptions(width=80, height=14, zone=zone))

    assert lines[-2].endswith(" more, outliers among them: 10")


def test_what_was_not_seen_is_not_drawn(zone: timezone) -> None:
    """No progress without a checkpoint before it, no rate without time, no ranks without ranks."""
    one = msgspec.structs.replace(busy().underway[1], usual_bytes=None, start_ns=busy().at_ns)
    state = msgspec.structs.replace(busy(), underway=(one,), devices=(), last=())
    text = "\n".join(frame(state, ScreenOptions(160, 50, zone)))

    assert "~" not in text
    for title in ("OF", "PROGRESS", "RATE", "RANKS", "STEP", "BLOCKED", "DEVICE"):
        assert title not in text.split()


def test_the_next_save_is_due_by_the_interval_of_its_job(zone: timezone) -> None:
    """Or late; not while one is in progress, nor where nothing records any more."""
    now_ns = busy().last[0].start_ns + 20 * 10**9  # saves start every 60 s
    due = msgspec.structs.replace(busy(), underway=(), at_ns=now_ns)
    late = msgspec.structs.replace(due, at_ns=now_ns + 50 * 10**9)
    alone = msgspec.structs.replace(due, last=due.last[:1])
    shown = [
        "\n".join(frame(state, ScreenOptions(100, 24, zone))[2:4]) for state in (due, late, alone, stopped(), busy())
    ]

    assert "  no save or restore in progress; train.py: next save in 40.0 s (usually every 1 min 00 s)" in shown[0]
    assert "next save 10.0 s late" in shown[1]
    assert [line for line in shown[2:] if "next save" in line] == []


def test_the_largest_writer_is_the_process_with_most_bytes() -> None:
    """With its rank, if it has one."""
    ranks = [Writer(pid=40 + n, comm="python", bytes=100 * n, rank=n) for n in (1, 3, 2)]
    alone = (Writer(pid=7, comm="cp", bytes=1),)

    assert [underway(checkpoint(9, 900, writers=one)).largest_writer for one in (tuple(ranks), alone, ())] == [
        "rank 3, pid 43", "cp 7", None,
    ]  # fmt: skip


def test_a_large_screen_is_filled(zone: timezone) -> None:
    """With stalls and the rate over time; a small one keeps its lines for the newest checkpoints."""
    options = ScreenOptions(100, 60, zone, recent=LATELY)
    large = frame(busy(), options)
    small = frame(busy(), replace(options, height=24))

    drawn = [line.split()[0] for line in large if line.startswith(("  Run", "  Duration", "  nvme0n1,"))]
    assert drawn == ["Run", "Duration", "nvme0n1,"]
    assert not any(line.startswith(("  Run", "  nvme0n1,")) for line in small)


def test_a_quiet_device_is_drawn_low(zone: timezone) -> None:
    """Beside its name are the last thirty rates, on the scale of all that the chart shows."""
    at_ns = [busy().at_ns - (40 - n) * 10**9 for n in range(41)]
    points = [Point(low, high, 10**6 if n else 6 * 10**8) for n, (low, high) in enumerate(pairwise(at_ns))]
    lines = frame(busy(), ScreenOptions(120, 24, zone, recent={"nvme0n1": points}))

    assert next(line for line in lines if line.startswith("  nvme0n1")).endswith(" " + "▁" * 30)


def test_a_limit_is_likely_only_while_most_of_the_time_was_judged(zone: timezone) -> None:
    """What a save is quiet for is in none of its accounts."""
    one = busy().underway[0]
    spent_ns = one.last_ns - one.start_ns

    def shown(quiet_ns: int) -> bool:
        state = msgspec.structs.replace(busy(), at_ns=one.last_ns + quiet_ns, underway=(one,))
        return "LIKELY" in "\n".join(frame(state, ScreenOptions(160, 50, zone)))

    assert shown(spent_ns)
    assert not shown(spent_ns + 1)


def test_progress_is_told_by_the_last_complete_one_of_the_same_job() -> None:
    """Neither by one that was broken off, nor by another job's or a restore."""
    going_on = [underway(checkpoint(9, 900))]
    last = [
        checkpoint(8, 800, bytes=1, status=Status.INCOMPLETE),
        checkpoint(7, 700, bytes=2, job="other.py"),
        checkpoint(6, 600, bytes=3, kind=Kind.RESTORE),
        checkpoint(5, 500, bytes=4),
        checkpoint(4, 400, bytes=5),
    ]

    assert [one.usual_bytes for one in with_usual_bytes(going_on, last)] == [4]
    assert [one.usual_bytes for one in with_usual_bytes(going_on, last[:3])] == [None]
