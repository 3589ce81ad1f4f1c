"""What one checkpoint cost: training blocked, GPU time, and how near it comes to what storage is sold for."""

from __future__ import annotations

from ckptprof.diagnose import durable, tiers
from ckptprof.diagnose.accounts.accounts import Accounting
from ckptprof.diagnose.sight import NS, Sight
from ckptprof.diagnose.verdict.nothing import LEAST_SHARE
from ckptprof.measures import LinkMeasure
from ckptprof.model import Checkpoint, Kind, Mode
from ckptprof.verdicts import Cost, Limit


def cost(found: Accounting, gpus: int | None = None, seen_gpus: int | None = None) -> Cost:
    """Return what one checkpoint cost; `gpus` of its job as given, as NVML tells, or one for each rank."""
    sight = found.sight
    checkpoint = sight.checkpoint
    known, origin = _gpus(checkpoint, gpus, seen_gpus)
    held = checkpoint.stall_ns
    stall = held / NS if held is not None else None
    speed = checkpoint.bytes / sight.span if sight.span > 0 else None
    each = speed / known if speed is not None and known else None
    best, from_ = _ceiling(found, speed)
    return Cost(
        stall_seconds=stall,
        background_seconds=_background(sight, stall),
        gpus=known,
        gpus_from=origin,
        gpu_seconds=stall * known if stall is not None and known else None,
        bytes_per_second=speed,
        bytes_per_second_per_gpu=each,
        ceiling_share=speed / best if speed is not None and best is not None and best >= 1 else None,
        ceiling_from=from_,
        tier=tiers.word(checkpoint.kind, each),
        durable_on_return=durable.on_return(checkpoint),
        durable_bytes_per_second=durable.bytes_per_second(sight),
    )


def _gpus(checkpoint: Checkpoint, given: int | None, seen: int | None) -> tuple[int | None, str | None]:
    if given is not None and given > 0:
        return given, "given"
    if seen is not None and seen > 0:
        return seen, "nvml"
    if checkpoint.ranks is not None and checkpoint.ranks > 0:
        return checkpoint.ranks, "ranks"
    return None, None


def _background(sight: Sight, stall: float | None) -> float | None:
    """Return for how long it went on beside training."""
    if sight.checkpoint.kind is Kind.RESTORE or sight.checkpoint.mode is Mode.SYNC:
        return 0.0
    return max(0.0, sight.span - stall) if sight.checkpoint.mode is Mode.ASYNC and stall is not None else None


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
    return shown, f"the best second of {below.name if isinstance(below, LinkMeasure) else below.device}"
