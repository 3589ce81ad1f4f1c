"""Messages of the long-running commands on stderr: one line each, with a priority for the journal."""

from __future__ import annotations

import contextlib
import os
import sys

from ckptprof import figures, units
from ckptprof.model import Checkpoint, Kind, Status
from ckptprof.report import checkpoint_facts, rows
from ckptprof.report.clean import clean

WARNING = 4  # syslog(3)
INFO = 6


def info(text: str, priority: int = INFO) -> None:
    """Write one line; a closed stderr is ignored."""
    line = clean(text)
    prefix = f"<{priority}>" if "JOURNAL_STREAM" in os.environ else ""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"{prefix}ckptprof: {line}\n".encode("utf-8", "backslashreplace").decode("utf-8"))
        sys.stderr.flush()


def warn(text: str) -> None:
    """Write one line as a warning."""
    info(text, WARNING)


def summary_line(checkpoint: Checkpoint) -> str:
    """Return the line that reports a checkpoint."""
    step = f" of step {checkpoint.step}" if checkpoint.step is not None else ""
    duration_ns = figures.duration_ns(checkpoint)
    rate = units.rate(figures.rate_bytes_per_second(checkpoint))
    blocked = f", training blocked for {units.duration(checkpoint.stall_ns)}" if checkpoint.stall_ns is not None else ""
    risk = f"; may not restore correctly: {checkpoint_facts.risk(checkpoint)}" if checkpoint.risks else ""
    cache = f" ({checkpoint.cache})" if checkpoint.cache is not None else ""
    return (
        f"{_kind(checkpoint)}{cache}{step} by {checkpoint.job}: {units.size(checkpoint.bytes)} in "
        f"{units.duration(duration_ns)} ({rate}){blocked}, {rows.location(checkpoint) or 'files not observed'}{risk}"
    )


def _kind(checkpoint: Checkpoint) -> str:
    if checkpoint.kind is Kind.COPY:
        return "copy of checkpoint files"
    words = [checkpoint.kind.value]
    if checkpoint.mode is not None:
        words.insert(0, checkpoint.mode.value)
    if checkpoint.status is Status.INCOMPLETE:
        words.insert(0, "incomplete")
    return " ".join(words)
