"""Whether a save was on stable storage when it returned, and how fast it goes there: what storage is compared by."""

from __future__ import annotations

from ckptprof.diagnose.sight import MOST, NS, Sight, seconds
from ckptprof.model import Checkpoint, Kind, Mode, Status

_TICK_SECONDS = 0.02  # of busy time, which the kernel counts in ticks: a rate over less is chance


def returned_ns(save: Checkpoint) -> int:
    """Return when a sync save counted as done: when training went on."""
    return max(save.end_ns, save.moments.committed_ns or 0, *(one.end_ns for one in save.blocked))


def on_return(save: Checkpoint) -> bool | None:
    """Return whether all of a save was on stable storage when it returned; None: not known.

    One in the background returned before it was written, when nobody saw.
    Where looks at the page cache tell it, the first look that found all written may be long after that was so: then a
    look after the return that found something unwritten is what shows the opposite.
    """
    if save.kind is not Kind.SAVE or save.status is Status.INCOMPLETE or save.mode is not Mode.SYNC:
        return None
    returned = returned_ns(save)
    unwritten_ns = save.measures.unwritten_ns if save.measures is not None else None
    if unwritten_ns is not None and unwritten_ns > returned:
        return False
    if save.durable_ns is None:
        return None
    if save.durable_ns <= returned:
        return True
    return None if save.durable_is_most else False


def bytes_per_second(sight: Sight) -> float | None:
    """Return at what rate a save goes to stable storage, its own where it does; else as if it had been synced.

    A sync writes what is unwritten after the last byte, at the rate that the device had while it wrote it back. It
    takes no longer than the kernel took without one.
    """
    save = sight.checkpoint
    was = on_return(save)
    if was is None or not save.bytes:
        return None
    whole = None if save.durable_ns is None else max(0, save.durable_ns - save.start_ns) / NS
    if was:
        spent: float | None = max(sight.span, whole or 0.0)
    else:
        written = _written_back(sight)
        spent = None if written is None or whole is None else min(whole, sight.span + save.bytes / written)
    return save.bytes / spent if spent else None


def _written_back(sight: Sight) -> float | None:
    """Return the rate of the device while it wrote the save back, never above a limit that is set on one below it."""
    moved, busy = sight.measures.written_back_bytes, seconds(sight.measures.written_back_ns)
    if moved is None or busy is None or busy < _TICK_SECONDS or moved < MOST * sight.checkpoint.bytes:
        return None
    limits = [one.throttled_bytes_per_second for one in sight.measures.devices]
    return min([moved / busy, *(limit for limit in limits if limit)])
