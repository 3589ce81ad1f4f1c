"""Deletion of old checkpoints in line: the part within the span of the save, and the part after it."""

from __future__ import annotations

from ckptprof.diagnose.sight import NS, Sight, seconds, some
from ckptprof.diagnose.wording import plural
from ckptprof.model import Kind

_LEAST = 0.01


def deletion(sight: Sight) -> tuple[float, float]:
    """Return (seconds within the span, seconds after its end) of deletion by the processes that wrote."""
    whole = seconds(sight.measures.clean_up_ns) or 0.0
    if whole < _LEAST or sight.checkpoint.kind is not Kind.SAVE:
        return 0.0, 0.0
    cleaned_ns = sight.checkpoint.moments.cleaned_ns
    after = max(0.0, (cleaned_ns - sight.checkpoint.end_ns) / NS) if cleaned_ns is not None else 0.0
    after = min(after, whole)
    return whole - after, after


def text(sight: Sight) -> str:
    """Return what was seen."""
    files = sight.measures.clean_up_files
    if files is None or some(files) == 0:
        return "deleting older checkpoints in line"
    return f"deleting {plural(int(some(files)), 'file')} of older checkpoints in line"
