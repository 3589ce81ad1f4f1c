"""The time from the moment when training stood still to the first byte: gathering, staging, or another save."""

from __future__ import annotations

import math

from ckptprof.diagnose.accounts.cleaning import deletion
from ckptprof.diagnose.accounts.packing import packed_seconds
from ckptprof.diagnose.accounts.ranks import alone, number_of_ranks, ranks_here
from ckptprof.diagnose.causes import Cause, Spent
from ckptprof.diagnose.sight import MOST, NS, Sight, pace, seconds, some
from ckptprof.figures import stall_seconds
from ckptprof.measures import BeforeMeasure
from ckptprof.model import Kind, Mode
from ckptprof.units import rate, size
from ckptprof.verdicts import Limit

_UNTOLD = "blocked before the first byte, and nothing tells by what"
_UNTOLD_SECONDS = 1.0  # what is shorter may be the host's own noise, and is left out
_MOVED = 0.3  # of the checkpoint's bytes
_BUSY = 0.5  # cores
_COPIES = 2.0  # a copy of the state is not so much larger than what is written of it
_COMPUTES = 0.7  # cores
_PACKING = 200e6  # bytes per second; a copy of memory is faster, pickling is not


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
    after = deletion(sight)[1] + packed_seconds(sight)
    return min(most, stall if sight.checkpoint.mode is Mode.ASYNC else max(0.0, stall - span - after))


def waited_for_previous(sight: Sight, blocked: float) -> float:
    """Return for how long of that the save before this one was still being written."""
    saves = [one for one in sight.history if one.kind is Kind.SAVE]
    start_ns = sight.checkpoint.start_ns
    return max(
        (max(0.0, (min(one.end_ns, start_ns) - max(one.start_ns, start_ns - int(blocked * NS))) / NS) for one in saves),
        default=0.0,
    )


def explain(sight: Sight, blocked: float, had_cpu: float) -> list[Spent]:
    """Return the accounts of the time before the start; they add up to it. `had_cpu`: as `path` has it."""
    before = sight.measures.before
    if blocked <= 0 or before is None:
        return []
    waited = min(blocked, waited_for_previous(sight, blocked))
    found = []
    if waited > 0:
        found.append(
            Spent(Cause.PREVIOUS_SAVE, Limit.PREVIOUS_SAVE, waited, "blocked while the save before was being written")
        )
        blocked -= waited
    whole = max(1.0, sight.checkpoint.bytes)
    told = seconds(before.held_ns) or blocked
    grown = some(before.grown_bytes) * min(1.0, blocked / told if told else 1.0)  # of the time that counts
    if _came_in(sight, before):
        text = f"blocked before the first byte, while {size(some(before.received_bytes))} came in over the network"
        return [*found, Spent(Cause.CAME_IN, Limit.GATHER, blocked, text)]
    if grown >= _MOVED * whole:
        growth = _grown(sight, blocked, grown, had_cpu)
        found.append(growth)
        blocked -= growth.seconds
    if blocked <= 0:
        return found
    if _cores(before) >= _BUSY * had_cpu:
        many = some(sight.checkpoint.ranks) >= 2 and before.helpers_busy is None
        who = "the process that wrote" if before.helpers_busy is None else "children that made what it wrote"
        text = f"blocked before the first byte, with {_cores(before):.1f} cores busy in {who}"
        return [*found, Spent(Cause.BUSY_BEFORE, Limit.GATHER if many else Limit.SERIALIZE, blocked, text)]
    return [*found, Spent(Cause.UNTOLD_BEFORE, None, blocked, _UNTOLD)] if blocked >= _UNTOLD_SECONDS else found


def _cores(before: BeforeMeasure) -> float:
    """Return the cores that were busy with it."""
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
    copied = f"; its GPUs sent {size(sent)} over PCIe since the look before" if sent >= _MOVED * grown else ""
    text = f"memory grew by {size(grown)} before the first byte, at {rate(speed)}{copied}"
    return Spent(Cause.GREW, limit, spent, text)
