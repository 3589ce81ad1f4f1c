"""Deletion of old checkpoints in line: the part within the span of the save, and the part after it."""

from __future__ import annotations

from ckptprof.diagnose.sight import NS, Sight, seconds
from ckptprof.model import Kind
from ckptprof.units import plural
from ckptprof.units import seconds as told

_LEAST = 0.01


def deletion(sight: Sight) -> tuple[float, float]:
    """Return (seconds within the span, seconds after its end) of deletion in line by the processes that wrote."""
    whole = seconds(sight.measures.clean_up_ns) or 0.0
    held = seconds(sight.measures.clean_up_after_ns)
    if sight.checkpoint.kind is not Kind.SAVE or max(whole, held or 0.0) < _LEAST:
        return 0.0, 0.0
    if held is not None:  # of what else was deleted later, nothing held training; within, its calls tell
        return max(0.0, whole - held) if held < _LEAST and _until_end(sight) else 0.0, held
    cleaned_ns = sight.checkpoint.moments.cleaned_ns
    after = max(0.0, (cleaned_ns - sight.checkpoint.end_ns) / NS) if cleaned_ns is not None else 0.0
    after = min(after, whole)
    return whole - after, after


def _until_end(sight: Sight) -> bool:
    cleaned_ns = sight.checkpoint.moments.cleaned_ns
    return cleaned_ns is not None and cleaned_ns <= sight.checkpoint.end_ns


def more(sight: Sight) -> str | None:
    """Return what was deleted after the end, for a sentence; None if nothing was."""
    _, after = deletion(sight)
    if after < _LEAST:
        return None
    files = sight.measures.clean_up_files
    what = f"{plural(int(files), 'file')} of older checkpoints" if files else "older checkpoints"
    return f"{told(after)} more in which {what} were deleted in line"


def text(sight: Sight) -> str:
    """Return what was seen."""
    files = sight.measures.clean_up_files
    if files is None or files == 0:
        return "deleting older checkpoints in line"
    return f"deleting {plural(int(files), 'file')} of older checkpoints in line"
