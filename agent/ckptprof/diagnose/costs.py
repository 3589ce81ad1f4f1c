"""What checkpoints cost: training held, GPU time, and how near they come to what storage is sold for."""

from __future__ import annotations

from ckptprof.diagnose.sight import NS, Sight, number, some
from ckptprof.diagnose.tiers import reached
from ckptprof.model import Kind, Mode
from ckptprof.verdicts import Cost


def cost(sight: Sight, gpus: int | None = None) -> Cost:
    """Return what one checkpoint cost; `gpus` of its job, else one for each rank is taken."""
    checkpoint = sight.checkpoint
    known = gpus if gpus is not None and gpus > 0 else None
    origin = "given" if known is not None else None
    if known is None and checkpoint.ranks is not None and checkpoint.ranks > 0:
        known, origin = checkpoint.ranks, "ranks"
    held = number(checkpoint.stall_ns)
    stall = held / NS if held is not None else None
    speed = some(checkpoint.bytes) / sight.span if sight.span > 0 else None
    each = speed / known if speed is not None and known else None
    tier = reached(checkpoint.kind, each) if each is not None else None
    best, from_ = _ceiling(sight)
    return Cost(
        stall_seconds=stall,
        background_seconds=_background(sight, stall),
        gpus=known,
        gpus_from=origin,
        gpu_seconds=stall * known if stall is not None and known else None,
        bytes_per_second=speed,
        bytes_per_second_per_gpu=each,
        ceiling_share=speed / best if speed is not None and best else None,
        ceiling_from=from_,
        tier=None if each is None else tier.name.lower() if tier is not None else "below",
    )


def _background(sight: Sight, stall: float | None) -> float | None:
    """Return for how long it went on beside training."""
    if sight.checkpoint.kind is Kind.RESTORE or sight.checkpoint.mode is Mode.SYNC:
        return 0.0
    return max(0.0, sight.span - stall) if sight.checkpoint.mode is Mode.ASYNC and stall is not None else None


def _ceiling(sight: Sight) -> tuple[float | None, str | None]:
    if sight.probed:
        return sight.probed, "ckptprof ceiling"
    if sight.remote:
        shown = number(sight.link.shown_bytes_per_second) if sight.link is not None else None
        return shown, f"the best second of {sight.link.name}" if sight.link is not None and shown else None
    shown = number(sight.device.shown_bytes_per_second) if sight.device is not None else None
    return shown, f"the best second of {sight.device.device}" if sight.device is not None and shown else None
