"""The picture that a report begins with."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from ckptprof.model import Checkpoint, Gap, Interval, Kind, Mode, Report, Watched
from ckptprof.report import answer
from ckptprof.report.clean import width as cells
from ckptprof.report.pictures import overview
from ckptprof.verdicts import Limit

_NS = 1_000_000_000


def _drawn(checkpoints: tuple[Checkpoint, ...], width: int = 110, gaps: tuple[Gap, ...] = ()) -> list[str]:
    watched = Watched(start_ns=checkpoints[0].start_ns, end_ns=checkpoints[-1].end_ns + 3600 * _NS, gaps=gaps)
    report = Report(host="h", watched=watched, checkpoints=checkpoints)
    return overview.lines(report, answer.conclude(report).costs, ("", ""), width, 10, colour=False)


def test_the_bar_is_the_run(make_checkpoint: Callable[..., Checkpoint]) -> None:
    """Each cell is its share of the run: what happened then, as high as training was blocked in it."""
    saves = []
    for number in range(3):
        one = make_checkpoint(number, number * 100, mode=Mode.SYNC, stall_ns=15 * _NS)
        blocked = (Interval(one.start_ns, one.start_ns + 15 * _NS),)
        saves.append(msgspec.structs.replace(one, end_ns=one.start_ns + 15 * _NS, blocked=blocked))
    copy = make_checkpoint(4, 150, kind=Kind.COPY, job="rsync", end_ns=saves[1].start_ns + 80 * _NS)
    gap = Gap(saves[0].start_ns + 40 * _NS, saves[0].start_ns + 70 * _NS, "suspended")
    bar, *lines = _drawn((*saves, copy), width=40, gaps=(gap,))  # 30 cells of 10 s

    assert bar == "Run       █▄──···───█▄───░░░──█▄────────"
    assert ": █ blocked 45.0 s (15 %), ░ copies, ─ training, · not recorded" in " ".join(" ".join(lines).split())


def test_what_was_not_seen_to_block_is_not_called_training(make_checkpoint: Callable[..., Checkpoint]) -> None:
    """Saves of unknown stall, and stalls of unknown time, are told as saves; what async ones did is beside training."""
    for changes, word in (
        ({}, "saving or restoring"),
        ({"mode": Mode.SYNC, "stall_ns": _NS}, "saving or restoring"),
        ({"mode": Mode.ASYNC, "stall_ns": 0}, "alongside training"),
    ):
        saves = tuple(make_checkpoint(n, n * 40, **changes) for n in range(3))
        assert f"▓ {word}" in " ".join(_drawn(saves))


def test_each_block_has_the_letter_of_its_limit(make_diagnosed: Callable[..., Checkpoint]) -> None:
    """In the order of the saves; the same drawing does not stand there twice."""
    limits = (Limit.DEVICE, Limit.CPU, Limit.NONE)
    saves = tuple(make_diagnosed(n, n * 100, limit=one, stall_ns=39_200_000_000) for n, one in enumerate(limits))
    lines = [line.rstrip() for line in _drawn(saves)]

    assert "Duration  ███" in lines
    assert "Limit     DC-  D disk, C cpu, - not slow" in lines
    assert not any(line.startswith("Limit") for line in _drawn(saves[2:] * 3))  # none of them was slow
    assert not any(line.startswith("Blocked   █") for line in lines)


def test_a_block_is_as_high_as_its_save_was_long(make_checkpoint: Callable[..., Checkpoint]) -> None:
    """Durations and stalls on one scale, under each other; what was not seen is no height."""
    took = (1, 2, 4, 8)
    saves = tuple(
        make_checkpoint(n, n * 100, end_ns=one.start_ns + took[n] * _NS, stall_ns=None if n == 1 else 2 * _NS)
        for n in range(4)
        for one in (make_checkpoint(n, n * 100),)
    )
    lines = _drawn(saves)

    assert "Duration  ▁▂▄█" in [line.rstrip() for line in lines]
    assert "Blocked   ▂?▂▂  ? not observed" in lines


@pytest.mark.parametrize("width", [20, 40, 80, 300])
def test_nothing_is_wider_than_the_page(width: int, make_checkpoint: Callable[..., Checkpoint]) -> None:
    """However many saves there were; one alone has no picture."""
    saves = tuple(make_checkpoint(n, n * 100, mode=Mode.SYNC, stall_ns=_NS) for n in range(500))

    assert max(map(cells, _drawn(saves, width))) <= width
    assert _drawn(saves[:1], width) == []
