"""Pauses of writers by the kernel because too much was dirty, by a low threshold or by the storage below."""

from __future__ import annotations

from dataclasses import dataclass

from ckptprof.diagnose.accounts.parts import Part
from ckptprof.diagnose.accounts.path import CriticalPath
from ckptprof.diagnose.sight import Sight, seconds, some
from ckptprof.units import size

_LOW_SHARE = 0.04  # of all memory; the default of vm.dirty_ratio is 20 % of what is available
_LOW_BYTES = 256 << 20
_NEARLY = 0.9  # of where the kernel begins to hold writers: it holds them, and memory is looked at in between


@dataclass(frozen=True)
class Pauses:
    """Dirty pauses on the critical path."""

    seconds: float
    lowered: bool  # the threshold is what is at fault: memory would hold the checkpoint
    text: str


def pauses(sight: Sight, path: CriticalPath) -> Pauses:
    """Return how long the critical thread was held because too much was dirty; part of its sleep in data calls."""
    asleep = path.time.parts.of(Part.DATA)
    if not sight.writes or sight.direct or not asleep:
        return Pauses(0.0, lowered=False, text="")
    held = _told(sight, path)
    if held is None:
        held = asleep if _at_threshold(sight) and not sight.remote else 0.0
    lowered = is_lowered(sight)
    if lowered and _at_threshold(sight):
        held = asleep  # what it waited for beside the pauses themselves was pages that were being written back
    held = min(held, asleep)
    threshold = sight.memory.dirty_threshold_bytes
    text = "blocked because too much was dirty"
    if threshold is not None:
        text += f" (threshold {size(threshold)}, checkpoint {size(sight.moved)})"
    return Pauses(held, lowered=lowered, text=text)


def is_lowered(sight: Sight) -> bool:
    """Return whether the dirty threshold is small against the checkpoint, and memory would hold it."""
    memory = sight.memory
    threshold, total = memory.dirty_threshold_bytes, memory.total_bytes
    if threshold is None or threshold >= sight.moved:
        return False
    available = memory.available_min_bytes
    if available is not None and available + threshold < sight.moved:
        return False
    return threshold < (_LOW_SHARE * total if total else _LOW_BYTES)


def _told(sight: Sight, path: CriticalPath) -> float | None:
    """Return the pauses of the critical thread: its share, by bytes, of those of its process."""
    process = sight.process(path.pid) if path.pid is not None else None
    held = seconds(process.dirty_pause_ns) if process is not None else None
    if held is None or process is None or path.thread is None:
        return None
    return held * (min(1.0, path.thread.bytes / process.bytes) if process.bytes else 1.0)


def _at_threshold(sight: Sight) -> bool:
    """Return whether dirty memory was where the kernel begins to hold writers: halfway to the threshold, or above."""
    memory = sight.memory
    threshold, dirty = memory.dirty_threshold_bytes, memory.dirty_max_bytes
    if not threshold or dirty is None:
        return False
    return dirty >= (threshold + some(memory.dirty_background_bytes)) / 2 * _NEARLY
