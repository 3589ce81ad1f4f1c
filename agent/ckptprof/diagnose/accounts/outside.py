"""The time before the first byte and after the last one in which training was blocked, and synchronous deletion."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ckptprof import units
from ckptprof.diagnose.accounts.ranks import SingleWriter
from ckptprof.diagnose.causes import WITHOUT_CPU, AttributedTime, Cause
from ckptprof.diagnose.context import CheckpointContext, or_zero, rate_of, seconds
from ckptprof.diagnose.tolerances import MOST, PART, SHORT_SECONDS, SLOW_MEMORY_RATE, TWICE
from ckptprof.figures import stall_seconds
from ckptprof.measures import BeforeMeasure
from ckptprof.model import Kind, Mode
from ckptprof.units import NS, plural, rate, size
from ckptprof.verdicts import Limit

_LEAST_SECONDS = 0.01
_UNKNOWN_CAUSE = "blocked before the first byte, cause unknown"


def deletion(context: CheckpointContext) -> tuple[float, float]:
    """Return (seconds within the span, seconds after its end) of synchronous deletion by the writers."""
    whole = seconds(context.measures.clean_up_ns) or 0.0
    after_end = seconds(context.measures.clean_up_after_ns)
    cleaned_ns = context.checkpoint.moments.cleaned_ns
    if context.checkpoint.kind is not Kind.SAVE or max(whole, after_end or 0.0) < _LEAST_SECONDS:
        return 0.0, 0.0
    if after_end is not None:  # later deletion did not block training; calls within the span are timed
        until_end = cleaned_ns is not None and cleaned_ns <= context.checkpoint.end_ns
        return max(0.0, whole - after_end) if after_end < _LEAST_SECONDS and until_end else 0.0, after_end
    after = max(0.0, (cleaned_ns - context.checkpoint.end_ns) / NS) if cleaned_ns is not None else 0.0
    after = min(after, whole)
    return whole - after, after


def deleted_after(context: CheckpointContext) -> str | None:
    """Describe deletion after the end for a sentence; None if there was none."""
    _, after = deletion(context)
    text = f"{units.seconds(after)} more deleting {_deleted(context)} synchronously"
    return text if after >= _LEAST_SECONDS else None


def deletion_text(context: CheckpointContext) -> str:
    """Describe the deletion of older checkpoints, with the number of files if known."""
    return f"deleting {_deleted(context)} synchronously"


def _deleted(context: CheckpointContext) -> str:
    files = context.measures.clean_up_files
    return f"{plural(files, 'file')} of older checkpoints" if files else "older checkpoints"


def _blocked_before(context: CheckpointContext, before: BeforeMeasure, arrived: float) -> float:
    first_ns = context.checkpoint.moments.first_data_ns or context.checkpoint.start_ns
    first_ns = max(first_ns, context.checkpoint.start_ns)
    inside = min(first_ns - context.checkpoint.start_ns, context.checkpoint.end_ns - context.checkpoint.start_ns) / NS
    blocked = max(0.0, (seconds(before.blocked_ns) or 0.0) - max(0.0, inside))
    return min(blocked, _max_blocked(context, arrived))


def arrived_share(context: CheckpointContext, only: SingleWriter | None) -> float:
    """Return the share of the bytes that came over the network before the first byte; 0 if there was no such state."""
    few, before = only is not None or context.ranks_here == 1, context.measures.before
    share = or_zero(before.received_bytes if before else None) / max(1.0, context.checkpoint.bytes)
    return min(1.0, share) if few and share >= PART else 0.0


def _max_blocked(context: CheckpointContext, arrived: float) -> float:
    """Return the maximum time that training can have been blocked before the start.

    It starts at the end of the previous save that blocked training. Unless one rank received the state of the others,
    it is also at most the stall, which accounts for the usual pauses of this trainer. Without a known stall it is 0.
    """
    start_ns, span = context.checkpoint.start_ns, context.span
    most = math.inf
    ended = [one.end_ns for one in context.history if one.mode is not Mode.ASYNC and one.end_ns <= start_ns]
    if ended:
        most = (start_ns - max(ended)) / NS
    stall = stall_seconds(context.checkpoint)
    if stall is None:
        return 0.0
    if arrived and context.ranks > 1:
        return most
    after = deletion(context)[1] + or_zero(seconds(context.measures.packed_ns))
    return min(most, stall if context.checkpoint.mode is Mode.ASYNC else max(0.0, stall - span - after))


def blocked_by(context: CheckpointContext, had_cpu: float, arrived: float) -> list[AttributedTime]:
    """Divide the time before the start for which a save blocked training into accounts; they add up to it.

    `had_cpu`: from `path.cpu_share`; `arrived`: from `arrived_share`.
    """
    before = context.measures.before
    if before is None or context.checkpoint.kind is not Kind.SAVE:
        return []
    blocked = _blocked_before(context, before, arrived)
    found, end_ns = [], context.checkpoint.start_ns
    saves = [(one.start_ns, min(one.end_ns, end_ns)) for one in context.history if one.kind is Kind.SAVE]
    right_before = _overlap([(end_ns - int(blocked * NS), end_ns)], saves)
    waited = _overlap([(one.start_ns, one.end_ns) for one in context.checkpoint.blocked], saves)  # and then copied
    if max(right_before, waited) > 0:
        text = "blocked while the previous save was still being written"
        found.append(AttributedTime(Cause.PREVIOUS_SAVE, Limit.PREVIOUS_SAVE, max(right_before, waited), text))
        blocked -= right_before
    whole = max(1.0, context.checkpoint.bytes)
    blocked_whole = seconds(before.blocked_ns) or blocked
    counted = min(1.0, blocked / blocked_whole) if blocked_whole else 1.0  # share of the time
    grown = or_zero(before.grown_bytes) * counted
    computes = max(_cores(before), or_zero(before.runnable_share) * had_cpu) >= MOST * had_cpu
    if arrived and (context.ranks > 1 or not computes):
        text = f"blocked before the first byte, while {size(or_zero(before.received_bytes))} arrived over the network"
        return [*found, AttributedTime(Cause.STATE_RECEIVED_BEFORE, Limit.GATHER, blocked, text)]
    if grown >= PART * whole:
        growth = _grown(context, before, blocked, grown, computes=computes)
        found.append(growth)
        blocked -= growth.seconds
    if blocked <= 0:
        return found
    if computes:
        many = or_zero(context.checkpoint.ranks) >= 2 and before.helpers_busy is None
        worker = "the writing process" if before.helpers_busy is None else "child processes that produced the data"
        text = f"blocked before the first byte, with {_cores(before):.1f} cores busy in {worker}"
        limit, waited = Limit.GATHER if many else Limit.SERIALIZE, _waits(before, blocked)
        return [*found, AttributedTime(Cause.BUSY_BEFORE, limit, blocked, text, runnable=waited)]
    if blocked >= SHORT_SECONDS:
        found.append(AttributedTime(Cause.UNKNOWN_BEFORE, None, blocked, _UNKNOWN_CAUSE))
    return found


def _overlap(spans: Sequence[tuple[int, int]], saves: Sequence[tuple[int, int]]) -> float:
    """Return the most seconds of some spans that lie in one of the saves."""
    inside = (sum(max(0, min(end, last) - max(start, first)) for start, end in spans) for first, last in saves)
    return max(inside, default=0) / NS


def _cores(before: BeforeMeasure) -> float:
    return or_zero(before.busy) + or_zero(before.helpers_busy)


def _waits(before: BeforeMeasure, spent: float) -> float:
    return spent * max(0.0, or_zero(before.runnable_share) - _cores(before))


def _grown(
    context: CheckpointContext, before: BeforeMeasure, blocked: float, grown: float, *, computes: bool
) -> AttributedTime:
    growing = seconds(before.growing_ns)
    spent = blocked if growing is None else min(blocked, growing)
    speed = rate_of(grown, spent)
    packs = sum(context.stacks().get(name, 0.0) for name in ("pickle", "crc", "compress"))
    built = grown > TWICE * context.checkpoint.bytes  # the data was built from it
    limit = Limit.SERIALIZE if packs >= MOST or built or (computes and speed < SLOW_MEMORY_RATE) else Limit.STAGING
    sent = or_zero(context.measures.gpu_sent_bytes)
    copied = f"; its GPUs sent {size(sent)} over PCIe since the previous sample" if sent >= PART * grown else ""
    text = f"memory grew by {size(grown)} before the first byte, at {rate(speed)}{copied}"
    waited = _waits(before, spent) if limit is Limit.SERIALIZE else 0.0
    return AttributedTime(Cause.MEMORY_GREW, limit, spent, text, runnable=waited)


def parsed(context: CheckpointContext, had_cpu: float) -> list[AttributedTime]:
    """Return the accounts of the time in which training was blocked after a restore, to parse the data."""
    if context.checkpoint.kind is not Kind.RESTORE:
        return []
    end_ns = context.checkpoint.end_ns
    after = sum(max(0, one.end_ns - max(one.start_ns, end_ns)) for one in context.checkpoint.blocked) / NS
    text = "memory kept growing after the last byte, while the data was parsed"
    waited, what = after * (1 - had_cpu), f"parsing what was read, but {WITHOUT_CPU}"
    return [
        AttributedTime(Cause.PARSED, Limit.SERIALIZE, after * had_cpu, text),
        AttributedTime(Cause.STARVED, Limit.CPU, waited, what, runnable=waited, work=Cause.PARSED),
    ]


def packed(context: CheckpointContext, had_cpu: float) -> AttributedTime:
    """Return the account of the wait for child programs that read a save: serialisation if they used a CPU."""
    spent = or_zero(seconds(context.measures.packed_ns))
    computes = or_zero(context.measures.packing_busy) >= MOST * had_cpu
    text = "waiting for its own programs that read the saved files"
    text += " and pack them" if computes else ""
    return AttributedTime(Cause.PACKED, Limit.SERIALIZE if computes else None, spent, text)
