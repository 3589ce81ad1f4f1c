"""The account of time: each second of the critical path of a checkpoint belongs to one account.

The path starts when training stopped for the checkpoint and ends when the checkpoint was complete, including
synchronous deletion of old ones and parsing of what was read.

Theory of operation
===================

1. `path` finds the critical thread: the one with the most bytes in the rank that ended last. Where it was idle, other
   threads of its process, then of its job, replace it.
2. `path.time_of` divides its time into parts (`parts.Part`). A part is a class of time that the kernel shows: asleep in
   a call, on CPU in the kernel, runnable without a CPU. Parts exclude each other and add up to the span. They are exact
   where calls are timed, else estimated from samples of the thread.
3. A part is not a cause: a second asleep in write(2) may be due to a slow device, a dirty page limit, or a rank that
   was late. `ORDER` lists the steps that claim time. A step gets the parts that the steps before it left. It claims the
   time that it can explain for an account (`AttributedTime`: a cause, a limit, a text) and leaves the rest. It may
   reassign time from one part to another.
4. Time that no step claims is unexplained. It lowers the confidence of the verdict.
5. Time runnable belongs to the work that waited for the CPU, if that work matters by itself (`_with_waits`) and did
   not wait for unusually long: removing the work removes its waits. The rest is `cpu`.
6. Time before the first byte and after the last one (`outside`) is not part of the span. It has its own accounts, which
   are added.

No step claims a second twice, loses one or creates one: tests/diagnose/test_verdict_properties.py.

A new class of time needs a name in `Part`, a line in `path` that separates it from the part that contained it, and a
row in `ORDER`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from ckptprof.diagnose.accounts import claims, outside, ranks
from ckptprof.diagnose.accounts.claims import Claim, ClaimInputs
from ckptprof.diagnose.accounts.parts import RUNNABLE, STORED, Part, Parts
from ckptprof.diagnose.accounts.path import CriticalPath, cpu_share, critical
from ckptprof.diagnose.causes import AttributedTime, Cause, Wait
from ckptprof.diagnose.context import CheckpointContext
from ckptprof.diagnose.tolerances import MOMENT_SECONDS
from ckptprof.verdicts import Limit

ORDER: tuple[Callable[[ClaimInputs, Parts], Claim], ...] = (
    # Whatever call they were in, these waits are for others: nothing below may explain them again.
    claims.stopped,
    claims.deletion,
    claims.late_rank,
    # Names before bytes: the bytes of a small file are cheap, and what is paid for each file is the limit.
    claims.kernel,
    claims.names,
    # Evidence that sleep in file calls is not for the storage below them, or that other time is.
    claims.direct_io,
    claims.dirty,
    claims.faults,
    claims.unknown_wait,
    # Device, network or server, and the other ranks. Before the waits for a CPU: who sleeps often wakes up often.
    claims.stored,
    claims.gathering,
    claims.copying,
    claims.own_code,
    claims.waits,
    # Sleep outside file calls: for the other threads of the job, where there is evidence.
    claims.lock,
    claims.unexplained,
)


@dataclass(frozen=True)
class Accounting:
    """The accounts of a checkpoint, and the data that they were derived from."""

    accounts: tuple[AttributedTime, ...]  # largest first
    context: CheckpointContext
    path: CriticalPath
    storage: Wait | None
    straggler: ranks.LateRank | None
    single_writer: ranks.SingleWriter | None
    cpu_in_calls: float  # seconds on CPU in reads and writes that bypass the page cache

    @property
    def seconds(self) -> float:
        """Length of the critical path."""
        return sum(one.seconds for one in self.accounts)

    @property
    def waiting(self) -> float:
        """Seconds asleep in reads, writes, syncs and closes, without dirty page pauses."""
        return sum(one.seconds for one in self.accounts if self.storage is not None and one.cause is self.storage.cause)

    @property
    def runnable(self) -> float:
        """Seconds waiting for a CPU, whatever account they belong to."""
        return sum(one.runnable for one in self.accounts)

    @property
    def bars(self) -> list[tuple[Limit | None, float]]:
        """The limits with their seconds, largest first; None: unexplained time."""
        sums: dict[Limit | None, float] = {}
        for one in self.accounts:
            sums[one.limit] = sums.get(one.limit, 0.0) + one.seconds
        return sorted(sums.items(), key=lambda pair: -pair[1])

    def share_of(self, limit: Limit | None) -> float:
        """Return the share of a limit in the path."""
        return self.of(limit) / self.seconds if self.seconds > 0 else 0.0

    def waited_for(self, limit: Limit | None) -> Wait | None:
        """Return the storage wait if it has this limit, else None."""
        return self.storage if self.storage is not None and self.storage.limit is limit else None

    def of(self, limit: Limit | None) -> float:
        """Sum the seconds of a limit."""
        return sum(one.seconds for one in self.accounts if one.limit is limit)


def account(context: CheckpointContext) -> Accounting:
    """Divide the time of a checkpoint into accounts."""
    path = critical(context)
    parts, ran = path.time.parts, cpu_share(path.thread)
    deleted, deleted_after = outside.deletion(context)
    late = ranks.late_rank(context, parts.of(*STORED) / context.span if context.span else 0.0)
    only, deletion = ranks.single_writer(context), outside.deletion_text(context)
    arrived = outside.arrived_share(context, only)
    inputs = ClaimInputs(context, path, late, max(deleted, parts.of(Part.UNLINK)), only, arrived)
    inside = claimed(inputs, parts)
    found = [one if only is None else _shared(one, only, inside.storage) for one in inside.charges]
    wanted = inputs.deleted - sum(one.seconds for one in found if one.cause is Cause.DELETION)
    blocked = outside.blocked_by(context, ran, arrived)
    found = [*_deleted_first(blocked, wanted, deletion), *outside.parsed(context, ran), outside.packed(context, ran),
             AttributedTime(Cause.DELETION, Limit.CLEAN_UP, deleted_after, deletion), *found]  # fmt: skip
    owned = (replace(one, work=None) for one in _with_waits(_merged(found), context.usual_seconds))
    largest = tuple(sorted(_merged(owned), key=lambda one: -one.seconds))
    return Accounting(largest, context, path, inside.storage, late, only, inside.on_cpu)


def claimed(inputs: ClaimInputs, parts: Parts) -> Claim:
    """Run all steps of `ORDER` over the parts."""
    found = Claim(parts)
    for step in ORDER:
        claim = step(inputs, found.left)
        waited = found.left.of(*RUNNABLE) - claim.left.of(*RUNNABLE) - claim.paced
        charges = [replace(one, runnable=one.runnable or waited) for one in claim.charges]
        spent, on_cpu = (*found.charges, *charges), found.on_cpu + claim.on_cpu
        found = Claim(claim.left, spent, claim.storage or found.storage, on_cpu)
    return found


def _deleted_first(found: Sequence[AttributedTime], wanted: float, text: str) -> list[AttributedTime]:
    """Assign up to `wanted` seconds of unexplained time before the start to deletion of old checkpoints."""
    charged = []
    for one in found:
        piece = min(max(0.0, wanted), one.seconds) if one.limit is None else 0.0
        wanted -= piece
        charged += [
            replace(one, seconds=one.seconds - piece),
            AttributedTime(Cause.DELETION, Limit.CLEAN_UP, piece, text),
        ]
    return charged


def _merged(found: Iterable[AttributedTime]) -> list[AttributedTime]:
    merged: dict[tuple[object, ...], AttributedTime] = {}
    for one in found:
        key = one.limit, one.text, one.work
        if one.seconds:
            known = merged.get(key, replace(one, seconds=0.0, runnable=0.0))
            merged[key] = replace(one, seconds=one.seconds + known.seconds, runnable=one.runnable + known.runnable)
    return list(merged.values())


def _with_waits(found: Sequence[AttributedTime], usual: float | None) -> list[AttributedTime]:
    """Assign waits for a CPU to the work that waited, if it is slow also without them: half a second on a free CPU.

    Not if they exceed `usual`, the seconds that earlier saves of the job took in all: these had the same work; or that
    work itself, if there are none.
    """
    on_cpu: dict[Limit | None, float] = {}
    for one in found:
        on_cpu[one.limit] = on_cpu.get(one.limit, 0.0) + one.seconds - one.runnable
    slow = {one.cause for one in found if one.limit not in (None, Limit.NONE) and on_cpu[one.limit] >= MOMENT_SECONDS}
    waits = {one.work: one.seconds for one in found if one.work in slow}
    own = sum(one.seconds - one.runnable for one in found if one.cause in slow and one.cause in waits)
    if sum(waits.values()) > (own if usual is None else usual):
        waits = {}
    return [
        replace(one, seconds=one.seconds + waits.get(one.cause, 0.0), runnable=one.runnable + waits.get(one.cause, 0.0))
        for one in found
        if one.work not in waits
    ]


def _shared(one: AttributedTime, only: ranks.SingleWriter, storage: Wait | None) -> AttributedTime:
    slow_copy = one.limit is Limit.PAGE_CACHE and one.cause is Cause.COPYING
    if one.limit not in ranks.SHARED_OUT and not slow_copy:
        return one
    if storage is not None and storage.imposed and one.limit is storage.limit:
        return one
    return replace(one, limit=Limit.SINGLE_WRITER, single_writer=only.text)
