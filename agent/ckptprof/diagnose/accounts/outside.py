"""The time before the first byte and after the last one in which training was blocked, and deletion in line."""

from __future__ import annotations

import math

from ckptprof import units
from ckptprof.diagnose.accounts.ranks import alone, number_of_ranks, ranks_here
from ckptprof.diagnose.causes import WITHOUT_CPU, Cause, Spent
from ckptprof.diagnose.sight import MOST, NS, Sight, pace, seconds, some
from ckptprof.figures import stall_seconds
from ckptprof.measures import BeforeMeasure
from ckptprof.model import Kind, Mode
from ckptprof.units import plural, rate, size
from ckptprof.verdicts import Limit

_LEAST_SECONDS = 0.01
_UNTOLD = "blocked before the first byte, cause unknown"
_UNTOLD_SECONDS = 1.0  # what is shorter may be the host's own noise, and is left out
_MOVED = 0.3  # of the checkpoint's bytes
_BUSY = 0.5  # cores
_COPIES = 2.0  # a copy of the state is not so much larger than what is written of it
_COMPUTES = 0.7  # cores
_PACKING = 200e6  # bytes per second; a copy of memory is faster, pickling is not
_PACKS = 0.5  # of a core: it compresses, or sums


def deletion(sight: Sight) -> tuple[float, float]:
    """Return (seconds within the span, seconds after its end) of deletion in line by the processes that wrote."""
    whole = seconds(sight.measures.clean_up_ns) or 0.0
    held = seconds(sight.measures.clean_up_after_ns)
    cleaned_ns = sight.checkpoint.moments.cleaned_ns
    if sight.checkpoint.kind is not Kind.SAVE or max(whole, held or 0.0) < _LEAST_SECONDS:
        return 0.0, 0.0
    if held is not None:  # of what else was deleted later, nothing held training; within, its calls tell
        until_end = cleaned_ns is not None and cleaned_ns <= sight.checkpoint.end_ns
        return max(0.0, whole - held) if held < _LEAST_SECONDS and until_end else 0.0, held
    after = max(0.0, (cleaned_ns - sight.checkpoint.end_ns) / NS) if cleaned_ns is not None else 0.0
    after = min(after, whole)
    return whole - after, after


def deleted_after(sight: Sight) -> str | None:
    """Return what was deleted after the end, for a sentence; None if nothing was."""
    _, after = deletion(sight)
    what = f"{units.seconds(after)} more deleting {_deleted(sight)} synchronously"
    return what if after >= _LEAST_SECONDS else None


def deletion_text(sight: Sight) -> str:
    """Return what was seen."""
    return f"deleting {_deleted(sight)} synchronously"


def _deleted(sight: Sight) -> str:
    files = sight.measures.clean_up_files
    return f"{plural(files, 'file')} of older checkpoints" if files else "older checkpoints"


def blocked_before(sight: Sight) -> float:
    """Return for how many seconds before its start a save blocked training, all that its accounts have to explain."""
    before = sight.measures.before
    if before is None or sight.checkpoint.kind is not Kind.SAVE:
        return 0.0
    first_ns = sight.checkpoint.moments.first_data_ns or sight.checkpoint.start_ns
    first_ns = max(first_ns, sight.checkpoint.start_ns)
    inside = min(first_ns - sight.checkpoint.start_ns, sight.checkpoint.end_ns - sight.checkpoint.start_ns) / NS
    blocked = max(0.0, (seconds(before.held_ns) or 0.0) - max(0.0, inside))
    return min(blocked, _most(sight, came_in=_came_in(sight, before)))


def _came_in(sight: Sight, before: BeforeMeasure) -> bool:
    """Return whether state may have come in over the network: as much, and not for ranks that write a part each."""
    few = alone(sight) is not None or ranks_here(sight) == 1
    return few and some(before.received_bytes) >= _MOVED * max(1.0, sight.checkpoint.bytes)


def _most(sight: Sight, *, came_in: bool) -> float:
    """Return for how long it can have been blocked at most.

    Not since before a save ended that blocked training itself; and, unless one rank of several received what it
    wrote, no longer than the stall, which knows what this trainer's usual pauses are. Where no stall was seen, nothing
    is told to have been blocked.
    """
    start_ns, span = sight.checkpoint.start_ns, sight.span
    most = math.inf
    ended = [one.end_ns for one in sight.history if one.mode is not Mode.ASYNC and one.end_ns <= start_ns]
    if ended:
        most = (start_ns - max(ended)) / NS
    stall = stall_seconds(sight.checkpoint)
    if stall is None:
        return 0.0
    if came_in and number_of_ranks(sight) > 1:
        return most
    after = deletion(sight)[1] + some(seconds(sight.measures.packed_ns))
    return min(most, stall if sight.checkpoint.mode is Mode.ASYNC else max(0.0, stall - span - after))


def blocked_by(sight: Sight, blocked: float, had_cpu: float) -> list[Spent]:
    """Return the accounts of the time before the start; they add up to it. `had_cpu`: as `path` has it."""
    before = sight.measures.before
    if blocked <= 0 or before is None:
        return []
    found, end_ns = [], sight.checkpoint.start_ns
    saves = [(max(one.start_ns, end_ns - int(blocked * NS)), min(one.end_ns, end_ns)) for one in sight.history
             if one.kind is Kind.SAVE]  # fmt: skip
    waited = min(blocked, max((end - start for start, end in saves), default=0) / NS)
    if waited > 0:
        text = "blocked while the previous save was still being written"
        found.append(Spent(Cause.PREVIOUS_SAVE, Limit.PREVIOUS_SAVE, waited, text))
        blocked -= waited
    whole = max(1.0, sight.checkpoint.bytes)
    told = seconds(before.held_ns) or blocked
    grown = some(before.grown_bytes) * min(1.0, blocked / told if told else 1.0)  # of the time that counts
    if _came_in(sight, before):
        text = f"blocked before the first byte, while {size(some(before.received_bytes))} arrived over the network"
        return [*found, Spent(Cause.CAME_IN, Limit.GATHER, blocked, text)]
    if grown >= _MOVED * whole:
        growth = _grown(sight, blocked, grown, had_cpu)
        found.append(growth)
        blocked -= growth.seconds
    if blocked <= 0:
        return found
    if _cores(before) >= _BUSY * had_cpu:
        many = some(sight.checkpoint.ranks) >= 2 and before.helpers_busy is None
        who = "the writing process" if before.helpers_busy is None else "child processes that produced the data"
        text = f"blocked before the first byte, with {_cores(before):.1f} cores busy in {who}"
        return [*found, Spent(Cause.BUSY_BEFORE, Limit.GATHER if many else Limit.SERIALIZE, blocked, text)]
    return [*found, Spent(Cause.UNTOLD_BEFORE, None, blocked, _UNTOLD)] if blocked >= _UNTOLD_SECONDS else found


def _cores(before: BeforeMeasure) -> float:
    return some(before.busy) + some(before.helpers_busy)


def _grown(sight: Sight, blocked: float, grown: float, had_cpu: float) -> Spent:
    before = sight.measures.before
    growing = seconds(before.growing_ns) if before is not None else None
    spent = blocked if growing is None else min(blocked, growing)
    speed = pace(grown, spent)
    packs = sum(sight.stacks().get(name, 0.0) for name in ("pickle", "crc", "compress"))
    slow = before is not None and _cores(before) >= _COMPUTES * had_cpu and speed < _PACKING
    built = grown > _COPIES * sight.checkpoint.bytes  # what is written was made of it
    limit = Limit.SERIALIZE if packs >= MOST or slow or built else Limit.STAGING
    sent = some(sight.measures.gpu_sent_bytes)
    copied = f"; its GPUs sent {size(sent)} over PCIe since the previous sample" if sent >= _MOVED * grown else ""
    text = f"memory grew by {size(grown)} before the first byte, at {rate(speed)}{copied}"
    return Spent(Cause.GREW, limit, spent, text)


def parsed(sight: Sight, had_cpu: float) -> list[Spent]:
    """Return the accounts of the time after a restore in which training was blocked: what was read was parsed."""
    if sight.checkpoint.kind is not Kind.RESTORE:
        return []
    end_ns = sight.checkpoint.end_ns
    after = sum(max(0, one.end_ns - max(one.start_ns, end_ns)) for one in sight.checkpoint.blocked) / NS
    text = "memory kept growing after the last byte, while the data was parsed"
    return [
        Spent(Cause.PARSED, Limit.SERIALIZE, after * had_cpu, text),
        Spent(Cause.STARVED_AFTER, Limit.CPU, after * (1 - had_cpu), f"parsing what was read, but {WITHOUT_CPU}"),
    ]


def packed(sight: Sight, had_cpu: float) -> Spent:
    """Return the account of the wait for programs of its own that read a save: of their code, if that kept a CPU."""
    spent, computes = some(seconds(sight.measures.packed_ns)), some(sight.measures.packing_busy) >= _PACKS * had_cpu
    text = "waiting for its own programs that read the saved files"
    text += " and pack them" if computes else ""
    return Spent(Cause.PACKED, Limit.SERIALIZE if computes else None, spent, text)
