"""What a reader sees of real recordings, at four widths; CKPTPROF_UPDATE_GOLDEN=1 writes down what is told now."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import timezone
from pathlib import Path

import msgspec
import pytest

from ckptprof.model import Checkpoint, Report, Watched
from ckptprof.report import terminal
from ckptprof.report.clean import width as cells
from ckptprof.report.summary import without_copies
from ckptprof.service.commands.replaying import replay

HERE = Path(__file__).resolve().parent
STREAMS = HERE.parent / "fixtures" / "streams"
GOLDEN = HERE.parent / "golden" / "report"
WIDTHS = (40, 80, 120, 200)
KEPT = 40  # lines of each end of a long one
EVERY_NS = 600_000_000_000
RECORDED = {
    "two-saves": "fault-straggler.trace",
    "no-stall-known": "mode-fork",
    "only-restores": "fault-restore-mapping-network",
    "incomplete": "killed-torch-save",
    "four-ranks": "fault-gather",
    "async-saves": "mode-thread",
    "many-small-files": "fault-metadata",
    "a-restart": "framework-deepspeed-zero-zero3",
    "much-unseen": "framework-orbax-manager-async",
    "nothing-found": "work-training-that-only-logs",
}


def _recorded(name: str) -> Report:
    return without_copies(replay(STREAMS / f"{name}.ckptrec.gz", None).report)


def _one() -> Report:
    """Return the first save of two."""
    report = _recorded("fault-network-s3")
    return msgspec.structs.replace(report, checkpoints=report.checkpoints[:1])


def _thousand() -> Report:
    """Return a week of a job: its two recorded saves in turn, one every ten minutes."""
    report = _recorded("fault-device-fsync-ext4")
    first, second = report.checkpoints
    saves = tuple(_again((first, second)[n % 2], n, first.start_ns + n * EVERY_NS) for n in range(1000))
    return Report(
        host=report.host, watched=Watched(start_ns=saves[0].start_ns, end_ns=saves[-1].end_ns), checkpoints=saves
    )


def _again(save: Checkpoint, number: int, start_ns: int) -> Checkpoint:
    step = 10 * (number + 1)
    return msgspec.structs.replace(
        save, id=number + 1, uid=str(number), step=step, start_ns=start_ns,
        end_ns=start_ns + save.end_ns - save.start_ns, path=re.sub(r"\d+(?=\.pt)", f"{step:06d}", save.path or ""),
    )  # fmt: skip


def _ends(text: str) -> str:
    """Return a long text without its middle."""
    lines = text.splitlines(keepends=True)
    left_out = len(lines) - 2 * KEPT
    return text if left_out <= 0 else "".join([*lines[:KEPT], f"... {left_out} lines ...\n", *lines[-KEPT:]])


MADE: dict[str, Callable[[], Report]] = {"one-save": _one, "thousand-saves": _thousand}


@pytest.mark.parametrize("name", [*RECORDED, *MADE])
def test_a_report_reads_as_it_was_read(name: str) -> None:
    """Each was read as a reader reads it: nothing cut off, said twice or contradictory; nothing too wide."""
    report = _recorded(RECORDED[name]) if name in RECORDED else MADE[name]()
    for width in WIDTHS:
        text = terminal.render(report, width=width, colour=False, zone=timezone.utc)
        shown = _ends(text)
        golden = GOLDEN / f"{name}-{width}.txt"
        if os.environ.get("CKPTPROF_UPDATE_GOLDEN"):
            golden.write_text(shown, encoding="utf-8")

        assert max(map(cells, text.splitlines())) <= width
        assert shown == golden.read_text(encoding="utf-8")
