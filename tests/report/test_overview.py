"""The picture that a report begins with."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ckptprof.model import Checkpoint, Gap, Kind, Mode, Report, Watched
from ckptprof.report import answer
from ckptprof.report.clean import width as cells
from ckptprof.report.pictures import overview

_NS = 1_000_000_000


def _drawn(checkpoints: tuple[Checkpoint, ...], width: int = 110, gaps: tuple[Gap, ...] = ()) -> list[str]:
    watched = Watched(start_ns=checkpoints[0].start_ns, end_ns=checkpoints[-1].end_ns, gaps=gaps)
    report = Report(host="h", watched=watched, checkpoints=checkpoints)
    return overview.lines(report, answer.conclude(report).costs, ("", ""), width, 10, colour=False)


def test_the_bar_is_the_run(make_checkpoint: Callable[..., Checkpoint]) -> None:
    """Each part has its share of the cells, all of them together are the run, and the words have the same seconds."""
    sync = tuple(make_checkpoint(n, n * 100, mode=Mode.SYNC, stall_ns=30 * _NS) for n in range(3))
    copy = make_checkpoint(4, 150, kind=Kind.COPY, job="rsync", end_ns=sync[1].start_ns + 80 * _NS)
    gap = Gap(sync[0].start_ns + 10 * _NS, sync[0].start_ns + 40 * _NS, "suspended")
    bar, legend = _drawn((*sync, copy), gaps=(gap,))[:2]

    assert bar == "Run       " + "█" * 30 + "░" * 10 + "─" * 50 + "·" * 10
    assert legend.split(": ")[1] == (
        "█ blocked 1 min 30 s, ░ copies 30.0 s, ─ training 2 min 30 s, · not recorded 30.0 s"
    )


def test_what_was_not_seen_to_block_is_not_called_training(make_checkpoint: Callable[..., Checkpoint]) -> None:
    """Saves of unknown stall are told as saves; of async ones what went on beside training is."""
    unknown = tuple(make_checkpoint(n, n * 40) for n in range(3))
    known = tuple(make_checkpoint(n, n * 40, mode=Mode.ASYNC, stall_ns=_NS) for n in range(3))

    assert "▓ saving or restoring 12.4 s" in " ".join(_drawn(unknown))
    assert "█ blocked 3.00 s, ▓ alongside training 9.36 s" in " ".join(_drawn(known))


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
    assert "Stall     ▂?▂▂  ; ? not observed" in lines


@pytest.mark.parametrize("width", [20, 40, 80, 300])
def test_nothing_is_wider_than_the_page(width: int, make_checkpoint: Callable[..., Checkpoint]) -> None:
    """However many saves there were; one alone has no picture."""
    saves = tuple(make_checkpoint(n, n * 100, mode=Mode.SYNC, stall_ns=_NS) for n in range(500))

    assert max(map(cells, _drawn(saves, width))) <= width
    assert _drawn(saves[:1], width) == []
