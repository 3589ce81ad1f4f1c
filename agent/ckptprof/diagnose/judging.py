"""One checkpoint: from what was measured around it to its verdict and its cost."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ckptprof.diagnose import tiers
from ckptprof.diagnose.accounts.accounts import Accounting, account
from ckptprof.diagnose.ceilings import Ceilings
from ckptprof.diagnose.sight import MOST, NS, Sight, look, seconds
from ckptprof.diagnose.verdict.nothing import LEAST_SHARE
from ckptprof.diagnose.verdict.verdict import verdict
from ckptprof.measures import LinkMeasure
from ckptprof.model import Checkpoint, Kind, Mode, Status
from ckptprof.verdicts import Cost, Limit

_TICK_SECONDS = 0.02  # of busy time, which the kernel counts in ticks: a rate over less is chance


def diagnose(
    checkpoint: Checkpoint,
    history: Sequence[Checkpoint] = (),
    ceilings: Sequence[Ceilings] | None = None,
    gpus: int | None = None,
    seen_gpus: int | None = None,
) -> Checkpoint:
    """Return the checkpoint with its verdict and cost; a copy as it is: nobody waits for it.

    `history`: earlier checkpoints of any job, `ceilings`: what `ckptprof ceiling` measured on this host, `gpus`: of the
    job on this host, if that is given, `seen_gpus`: as NVML tells. What is missing or contradicts itself lowers the
    confidence and raises nothing.
    """
    if checkpoint.kind is Kind.COPY:
        return msgspec.structs.replace(checkpoint, verdict=None, cost=None)
    sight = look(checkpoint, history, ceilings)
    found = account(sight)
    return msgspec.structs.replace(checkpoint, verdict=verdict(found), cost=cost(found, gpus, seen_gpus))


def cost(found: Accounting, gpus: int | None = None, seen_gpus: int | None = None) -> Cost:
    """Return what one checkpoint cost; `gpus` of its job as given, as NVML tells, or one for each rank."""
    sight = found.sight
    checkpoint = sight.checkpoint
    told = (gpus, "given"), (seen_gpus, "nvml"), (checkpoint.ranks, "ranks")
    known, origin = next(((count, by) for count, by in told if count is not None and count > 0), (None, None))
    stall = seconds(checkpoint.stall_ns)
    speed = checkpoint.bytes / sight.span if sight.span > 0 else None
    each = speed / known if speed is not None and known else None
    best, from_ = _ceiling(found, speed)
    background = None  # for how long it went on beside training
    if checkpoint.kind is Kind.RESTORE or checkpoint.mode is Mode.SYNC:
        background = 0.0
    elif checkpoint.mode is Mode.ASYNC and stall is not None:
        background = max(0.0, sight.span - stall)
    return Cost(
        stall_seconds=stall,
        background_seconds=background,
        gpus=known,
        gpus_from=origin,
        gpu_seconds=stall * known if stall is not None and known else None,
        bytes_per_second=speed,
        bytes_per_second_per_gpu=each,
        ceiling_share=speed / best if speed is not None and best is not None and best >= 1 else None,
        ceiling_from=from_,
        tier=tiers.word(checkpoint.kind, each),
        durable_on_return=on_return(checkpoint),
        durable_bytes_per_second=durable_bytes_per_second(sight),
    )


def _ceiling(found: Accounting, speed: float | None) -> tuple[float | None, str | None]:
    """Return (bytes per second that this path can do, who says so): by a probe, or for who waited for the storage.

    What went into the page cache tells nothing of a device, nor does a device that was never seen to be as fast.
    """
    sight = found.sight
    if sight.probed:
        return sight.probed, "ckptprof ceiling"
    if found.waiting + found.of(Limit.PAGE_FAULT) < LEAST_SHARE * found.quiet_seconds:
        return None, None
    below = sight.link if sight.remote else sight.device
    shown = below.shown_bytes_per_second if below is not None else None
    if below is None or not shown or shown < (speed or 0.0):
        return None, None
    return shown, f"the fastest second of {below.name if isinstance(below, LinkMeasure) else below.device}"


def on_return(save: Checkpoint) -> bool | None:
    """Return whether all of a save was on stable storage when it returned; None: not known.

    One in the background returned before it was written, when nobody saw.
    Where looks at the page cache tell it, the first look that found all written may be long after that was so: then a
    look after the return that found something unwritten is what shows the opposite.
    """
    if save.kind is not Kind.SAVE or save.status is Status.INCOMPLETE or save.mode is not Mode.SYNC:
        return None
    # A sync save counts as done when training goes on
    returned = max(save.end_ns, save.moments.committed_ns or 0, *(one.end_ns for one in save.blocked))
    unwritten_ns = save.measures.unwritten_ns if save.measures is not None else None
    if unwritten_ns is not None and unwritten_ns > returned:
        return False
    if save.durable_ns is None:
        return None
    if save.durable_ns <= returned:
        return True
    return None if save.durable_is_most else False


def durable_bytes_per_second(sight: Sight) -> float | None:
    """Return at what rate a save goes to stable storage, its own where it does; else as if it had been synced.

    A sync writes what is unwritten after the last byte, at the rate that the device had while it wrote it back. It
    takes no longer than the kernel took without one.
    """
    save = sight.checkpoint
    was = on_return(save)
    if was is None or not save.bytes:
        return None
    whole = None if save.durable_ns is None else max(0, save.durable_ns - save.start_ns) / NS
    written = None if was else _written_back(sight)
    spent = max(sight.span, whole or 0.0) if was else None
    if written is not None and whole is not None:
        spent = min(whole, sight.span + save.bytes / written)
    return save.bytes / spent if spent else None


def _written_back(sight: Sight) -> float | None:
    """Return the rate of the device while it wrote the save back, never above a limit that is set on one below it."""
    moved, busy = sight.measures.written_back_bytes, seconds(sight.measures.written_back_ns)
    if moved is None or busy is None or busy < _TICK_SECONDS or moved < MOST * sight.checkpoint.bytes:
        return None
    limits = [one.throttled_bytes_per_second for one in sight.measures.devices]
    return min([moved / busy, *(limit for limit in limits if limit)])
