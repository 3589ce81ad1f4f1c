"""One checkpoint: from the measurements around it to its verdict and its cost."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ckptprof.diagnose import tiers
from ckptprof.diagnose.accounts.accounts import Accounting, account
from ckptprof.diagnose.ceilings import Ceilings
from ckptprof.diagnose.context import CheckpointContext, gather_context, seconds
from ckptprof.diagnose.tolerances import MOST, TICK_SECONDS
from ckptprof.diagnose.verdict.verdict import verdict
from ckptprof.model import Checkpoint, Kind, Mode, Status
from ckptprof.units import NS
from ckptprof.verdicts import Cost


def diagnose(
    checkpoint: Checkpoint,
    history: Sequence[Checkpoint] = (),
    ceilings: Sequence[Ceilings] | None = None,
    gpus: int | None = None,
    observed_gpus: int | None = None,
) -> Checkpoint:
    """Add verdict and cost to a checkpoint; a copy is returned without: it blocks nothing.

    `history`: earlier checkpoints of any job, `ceilings`: results of `ckptprof ceiling` on this host, `gpus`: GPUs of
    the job on this host, if given, `observed_gpus`: those by NVML. Missing and contradictory measurements lower
    the confidence; they raise no error.
    """
    if checkpoint.kind is Kind.COPY:
        return msgspec.structs.replace(checkpoint, verdict=None, cost=None)
    context = gather_context(checkpoint, history, ceilings)
    found = account(context)
    return msgspec.structs.replace(checkpoint, verdict=verdict(found), cost=cost(found, gpus, observed_gpus))


def cost(found: Accounting, gpus: int | None = None, observed_gpus: int | None = None) -> Cost:
    """Calculate the cost of one checkpoint; GPUs as given, according to NVML, or one per rank."""
    context = found.context
    checkpoint = context.checkpoint
    ranks = checkpoint.ranks if context.ranks > 1 else None  # a single one may have no GPU
    sources = (gpus, "given"), (observed_gpus, "nvml"), (ranks, "ranks")
    known, origin = next(((count, by) for count, by in sources if count is not None and count > 0), (None, None))
    stall = seconds(checkpoint.stall_ns)
    speed = checkpoint.bytes / context.span if context.span > 0 else None
    each = speed / known if speed is not None and known else None
    best = context.probed
    background = None  # time alongside training
    if checkpoint.kind is Kind.RESTORE or checkpoint.mode is Mode.SYNC:
        background = 0.0
    elif checkpoint.mode is Mode.ASYNC and stall is not None:
        background = max(0.0, context.span - stall)
    return Cost(
        stall_seconds=stall,
        background_seconds=background,
        gpus=known,
        gpus_from=origin,
        gpu_seconds=stall * known if stall is not None and known else None,
        bytes_per_second=speed,
        bytes_per_second_per_gpu=each,
        ceiling_share=speed / best if speed is not None and best is not None and best >= 1 else None,
        tier=tiers.word(checkpoint.kind, each),
        durable_on_return=is_durable_on_return(checkpoint),
        durable_bytes_per_second=durable_bytes_per_second(context),
    )


def is_durable_on_return(save: Checkpoint) -> bool | None:
    """Return True if all data of a save was on stable storage when it returned; None: unknown.

    Unknown for async saves: when they return is not observed. Samples of the page cache come late, so they never prove
    True; a sample after the return that still finds unwritten data proves False.
    """
    if save.kind is not Kind.SAVE or save.status is Status.INCOMPLETE or save.mode is not Mode.SYNC:
        return None
    # A sync save counts as done when training resumes
    returned = max(save.end_ns, save.moments.committed_ns or 0, *(one.end_ns for one in save.blocked))
    unwritten_ns = save.measures.unwritten_ns if save.measures is not None else None
    if unwritten_ns is not None and unwritten_ns > returned:
        return False
    if save.durable_ns is None:
        return None
    if save.durable_ns <= returned:
        return True
    return None if save.durable_is_most else False


def durable_bytes_per_second(context: CheckpointContext) -> float | None:
    """Return the rate to stable storage: that of the save if it is durable, else estimated as if it had synced.

    A sync writes the remaining data after the last byte, at the rate that the device had during writeback. It takes at
    most as long as the kernel took without it.
    """
    save = context.checkpoint
    was = is_durable_on_return(save)
    if was is None or not save.bytes:
        return None
    whole = None if save.durable_ns is None else max(0, save.durable_ns - save.start_ns) / NS
    written = None if was else _written_back(context)
    spent = (whole or context.span) if was else None  # what comes after that, such as a check, is not of the storage
    if written is not None and whole is not None:
        spent = min(whole, context.span + save.bytes / written)
    return save.bytes / spent if spent else None


def _written_back(context: CheckpointContext) -> float | None:
    written, busy = context.measures.written_back_bytes, seconds(context.measures.written_back_ns)
    if written is None or busy is None or busy < TICK_SECONDS or written < MOST * context.checkpoint.bytes:
        return None
    limits = [one.throttled_bytes_per_second for one in context.measures.devices]
    return min([written / busy, *(limit for limit in limits if limit)])
