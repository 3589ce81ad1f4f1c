"""The steps that claim time of a critical path: each consumes parts, and returns an account and the remaining parts.

Their order is `accounts.ORDER`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from ckptprof.diagnose.accounts.network_evidence import could_bypass_cache
from ckptprof.diagnose.accounts.outside import deletion_text
from ckptprof.diagnose.accounts.parts import IDLE, RUNNABLE, STORED, Part, Parts
from ckptprof.diagnose.accounts.path import CriticalPath, cpu_share
from ckptprof.diagnose.accounts.ranks import LateRank, SingleWriter
from ckptprof.diagnose.accounts.storage_waits import request_seconds, resolve, throttle
from ckptprof.diagnose.causes import STOPPED, WITHOUT_CPU, AttributedTime, Cause, Wait
from ckptprof.diagnose.context import CheckpointContext, or_zero, seconds
from ckptprof.diagnose.tolerances import (
    HARDLY_ANY,
    LARGELY,
    MEMORY_RATE,
    MOST,
    NEARLY_ALL,
    PART,
    SLIGHT,
    SLOW_MEMORY_RATE,
    SMALL_BYTES,
)
from ckptprof.measures import ThreadMeasure
from ckptprof.model import Mode
from ckptprof.units import NS, percent, plural, rate, size
from ckptprof.verdicts import Limit

MANY_FILES = 200
_ROUNDING_SECONDS = 1e-6  # less is a rounding error of sums, which differ between Python 3.11 and 3.12
_EACH_WAITS = (Limit.FLUSH, Limit.SMALL_IO)  # operation by operation
_NAMES = (Part.CREATE, Part.RENAME, Part.METADATA)
OF_EACH_FILE = (*_NAMES, Part.CLOSE, Part.DATA, Part.COPY, Part.USER, Part.STARVED, Part.QUEUED)
MAPPED = (Part.FAULT, Part.KERNEL, Part.REST, Part.DATA, Part.COPY)  # where a mapped restore spends its time
_WAITS = {
    Part.CHILD: (Cause.CHILD, "until a child process ended"),
    Part.FILE_LOCK: (Cause.FILE_LOCK, "for a file lock (flock, fcntl)"),
    Part.LOCK: (Cause.UNEXPLAINED, "for another thread or process (futex, pipe)"),
    Part.NETWORK: (Cause.UNEXPLAINED, "in sends, receives and polls"),
    Part.SLEEP: (Cause.UNEXPLAINED, "by its own request"),
}
_LOCKED_SECONDS = 0.1  # of CPU time: ten ticks of the kernel's accounting
_ONE_CORE = (0.7, 1.3)  # cores of a process whose threads run one at a time, including its kernel calls


@dataclass(frozen=True)
class ClaimInputs:
    """The input of a claim besides the parts."""

    context: CheckpointContext
    path: CriticalPath
    straggler: LateRank | None
    deleted: float  # seconds of deletion within the span
    only: SingleWriter | None
    arrived: float  # share of the bytes that other ranks had sent before the first byte


class Claim(NamedTuple):
    """The result of a step: accounts, and the remaining parts."""

    left: Parts
    charges: tuple[AttributedTime, ...] = ()
    storage: Wait | None = None  # the storage wait, if any
    on_cpu: float = 0.0  # seconds on CPU that are part of such a wait now
    paced: float = 0.0  # seconds runnable in which a limit on the device applied anyway


def stopped(_: ClaimInputs, parts: Parts) -> Claim:
    """Claim the time in which the thread was not allowed to run."""
    spent = parts.of(Part.STOPPED)
    charge = AttributedTime(Cause.STOPPED, Limit.CPU, spent, STOPPED, runnable=spent)
    return Claim(parts.without(Part.STOPPED), (charge,) if spent > 0 else ())


def deletion(inputs: ClaimInputs, parts: Parts) -> Claim:
    """Claim the deletion of old checkpoints: its calls, and waits while other processes deleted."""
    spent, left = parts.claim(inputs.deleted, Part.UNLINK, *IDLE)
    return _claimed(left, Cause.DELETION, Limit.CLEAN_UP, spent, deletion_text(inputs.context))


def late_rank(inputs: ClaimInputs, parts: Parts) -> Claim:
    """Claim the time by which the last rank was late: from waits first, then from all parts in proportion."""
    if inputs.straggler is None:
        return Claim(parts)
    waited, left = parts.claim(inputs.straggler.seconds, *IDLE)
    worked, left = left.claim_evenly(inputs.straggler.seconds - waited)
    return _claimed(left, Cause.LATE_RANK, Limit.STRAGGLER, waited + worked, inputs.straggler.text)


def kernel(inputs: ClaimInputs, parts: Parts) -> Claim:
    """Divide other kernel time into copying and creating files; without call times by the number of files."""
    context, spent = inputs.context, parts.of(Part.KERNEL)
    if context.is_mapped and not context.is_save:
        return Claim(parts)  # page faults
    creates = sum(or_zero(one.creates) for one in context.measures.threads)
    is_uncounted = 0 < creates < MOST * context.files  # with ten thousand new files a second the trace drops events
    if _many_small(context) and (not inputs.path.time.is_exact or is_uncounted):
        names = max(0.0, spent - context.transferred_bytes / MEMORY_RATE)
        parts = parts.reassign(names, Part.KERNEL, Part.CREATE)
    return Claim(parts.reassign(spent, Part.KERNEL, Part.COPY))


def _many_small(context: CheckpointContext) -> bool:
    files = context.files
    return files >= MANY_FILES and context.transferred_bytes / files < SMALL_BYTES


def names(inputs: ClaimInputs, parts: Parts) -> Claim:
    """Claim the time in file name operations; for many small files all time that is spent per file."""
    context, files = inputs.context, inputs.context.files
    spent, whole = parts.of(*_NAMES), parts.without(Part.QUEUED, Part.STARVED).total
    claimed = OF_EACH_FILE if _many_small(context) and spent > SLIGHT * whole else _NAMES
    words = "looking up" if parts.of(Part.METADATA) > MOST * spent else "creating and renaming"
    each = f" of {size(context.transferred_bytes / files)} each" if files >= MANY_FILES else ""
    count = plural(int(files), "file") if each else "files"
    text = f"{words if context.is_save else 'opening'} {count}{each}"
    return _claimed(parts.without(*claimed), Cause.NAMES, Limit.METADATA, parts.of(*claimed), text)


def direct_io(inputs: ClaimInputs, parts: Parts) -> Claim:
    """Assign the CPU time of calls that bypass the page cache to their I/O."""
    spent = parts.of(Part.COPY) if inputs.context.is_direct else 0.0
    return Claim(parts.reassign(spent, Part.COPY, Part.DATA), on_cpu=spent)


def dirty(inputs: ClaimInputs, parts: Parts) -> Claim:
    """Claim pauses by the dirty page limit if it is set too low; otherwise the pauses are waits for storage.

    A limit on the device also applies while the thread waits for a CPU.
    """
    context = inputs.context
    lowered, threshold = _is_lowered(context), context.memory.dirty_threshold_bytes
    paused, left = parts.claim(_paused_seconds(inputs, lowered=lowered), Part.DATA)
    if not lowered or not paused:
        waiting = parts.of(*STORED) - paused
        return Claim(parts.reassign(_paced_seconds(context, parts, waiting), Part.QUEUED, Part.DATA))
    paced_seconds, left = left.claim(_paced_seconds(context, parts, paused), Part.QUEUED)
    text = f"blocked by the limit on dirty pages ({size(threshold)}, checkpoint {size(context.transferred_bytes)})"
    claim = _claimed(left, Cause.DIRTY, Limit.PAGE_CACHE, paused + paced_seconds, text)
    return claim._replace(paced=paced_seconds)


def _is_lowered(context: CheckpointContext) -> bool:
    """Check whether the dirty page limit is at fault: small compared with the checkpoint, which fits into memory."""
    memory = context.memory
    threshold, total, available = memory.dirty_threshold_bytes, memory.total_bytes, memory.available_min_bytes
    if threshold is None or threshold >= context.transferred_bytes:
        return False
    if available is not None and available + threshold < context.transferred_bytes:
        return False
    return threshold < HARDLY_ANY * or_zero(total)


def _paused_seconds(inputs: ClaimInputs, *, lowered: bool) -> float:
    """Estimate the pauses of the critical thread by the dirty page limit; they are part of its sleep in data calls."""
    context, thread, asleep = inputs.context, inputs.path.thread, inputs.path.time.parts.of(Part.DATA)
    if not context.is_save or context.is_direct or not asleep:
        return 0.0
    threshold, dirtied = context.memory.dirty_threshold_bytes, context.memory.dirty_max_bytes
    # The kernel starts to pause writers halfway to the threshold
    throttled_from = (or_zero(threshold) + or_zero(context.memory.dirty_background_bytes)) / 2 * NEARLY_ALL
    at_threshold = bool(threshold) and dirtied is not None and dirtied >= throttled_from
    if lowered and at_threshold:
        return asleep  # the rest of the sleep was waiting for pages under writeback
    process = inputs.path.process
    pause = seconds(process.dirty_pause_ns) if process is not None else None
    if pause is None or process is None or thread is None:
        return asleep if at_threshold and not context.is_remote else 0.0
    return min(asleep, pause * (min(1.0, thread.bytes / process.bytes) if process.bytes else 1.0))


def _paced_seconds(context: CheckpointContext, parts: Parts, waiting: float) -> float:
    bound = throttle(context, waiting + parts.of(Part.QUEUED)) if waiting > 0 else None
    return 0.0 if bound is None else min(bound.least, context.span) - waiting


def faults(inputs: ClaimInputs, parts: Parts) -> Claim:
    """Claim page faults of a mapped restore.

    For a remote file the time is left to the storage step if the network was at its limit, as for reads.
    """
    context = inputs.context
    if not context.is_mapped or context.is_save:
        return Claim(parts)
    asleep = parts.of(Part.FAULT, Part.REST, Part.DATA)
    far = resolve(context, data=asleep, sync=0.0, waiting=asleep) if context.is_remote and asleep > 0 else None
    if far is not None and far.limit is Limit.NETWORK:
        on_cpu = parts.of(Part.KERNEL, Part.COPY)
        return Claim(parts.without(*MAPPED).plus({Part.DATA: asleep, Part.COPY: on_cpu}))
    major = sum(or_zero(one.major_faults) for one in context.measures.processes)
    if not major and context.checkpoint.cache == "warm":
        return Claim(parts.reassign(parts.of(Part.KERNEL), Part.KERNEL, Part.FAULT))
    spent, left = parts.of(*MAPPED), parts.without(*MAPPED)
    if spent <= 0:
        return Claim(left)
    wakeups, left = left.claim(_wakeup_seconds(left, spent), Part.QUEUED)
    text = plural(int(major), "major page fault") if major else "page faults"
    return _claimed(left, Cause.FAULTS, Limit.PAGE_FAULT, spent + wakeups, f"in {text} of a mapped file")


def _wakeup_seconds(parts: Parts, asleep: float) -> float:
    at_work = parts.of(Part.COPY, Part.KERNEL)
    return parts.of(Part.QUEUED) * asleep / (asleep + at_work)


def unknown_wait(inputs: ClaimInputs, parts: Parts) -> Claim:
    """Assign sleep without samples to storage if the storage was at its limit."""
    context, rest = inputs.context, parts.of(Part.REST)
    if inputs.path.time.calls_known or rest <= 0 or not context.device_bytes:
        return Claim(parts)
    at_limit = throttle(context, rest) is not None or (context.busy_of(context.device) or 0.0) >= LARGELY
    is_theirs = at_limit and context.device_bytes >= MOST * context.transferred_bytes
    return Claim(parts.reassign(rest, Part.REST, Part.DATA) if is_theirs else parts)


def stored(inputs: ClaimInputs, parts: Parts) -> Claim:
    """Claim the time asleep in reads, writes, syncs and closes, with the storage that it waited for."""
    waiting, left = parts.of(*STORED), parts.without(*STORED)
    if waiting <= 0:
        return Claim(left)
    found = resolve(inputs.context, data=parts.of(Part.DATA), sync=parts.of(Part.SYNC), waiting=waiting)
    waited = _device_seconds(inputs, found, waiting)
    if waited == waiting:
        wakeups, left = left.claim(_wakeup_seconds(left, waiting) if found.limit in _EACH_WAITS else 0.0, Part.QUEUED)
        return Claim(left, (AttributedTime(found.cause, found.limit, waiting + wakeups, found.text),), found)
    idle = AttributedTime(Cause.UNEXPLAINED, None, waiting - waited, "in file calls, while its disks had no request")
    return Claim(left, (AttributedTime(found.cause, found.limit, waited, found.text), idle), found)


def _device_seconds(inputs: ClaimInputs, found: Wait, waiting: float) -> float:
    """Return how much of a wait its disks explain: all, unless they had requests for far less."""
    context, most = inputs.context, min(waiting, request_seconds(inputs.context))
    if found.limit in _EACH_WAITS or found.imposed or context.is_remote:
        return waiting
    if not inputs.path.time.cpu_known:
        return most  # who copies looks asleep
    is_covered = or_zero(context.device_bytes) >= MOST * context.transferred_bytes  # else they are of another time
    return most if is_covered and most < PART * waiting else waiting


def copying(inputs: ClaimInputs, parts: Parts) -> Claim:
    """Claim the CPU time of copying data; it is no limit at the speed of memory."""
    context = inputs.context
    claimed = (Part.COPY,) if context.is_mapped else (Part.COPY, Part.FAULT)
    spent, left = parts.of(*claimed), parts.without(*claimed)
    if spent <= 0:
        return Claim(left)
    speed = context.transferred_bytes / max(1, int(or_zero(context.checkpoint.ranks))) / spent
    thread = max((one.bytes for one in context.measures.threads), default=0.0)
    speed = max(speed, thread / spent)
    way = "into the page cache" if context.is_save else "what was read into its own memory"
    passed_by = could_bypass_cache(context)
    slow = context.is_save and (speed < SLOW_MEMORY_RATE or passed_by)
    text = f"copying {way} at {rate(speed)}"
    if slow:
        idle = ", while its servers were mostly idle" if passed_by else ""
        return _claimed(left, Cause.COPYING, Limit.PAGE_CACHE, spent, f"{text}{idle}")
    only = inputs.only  # of what it received, other ranks would have copied their part at the same time
    gathered = spent * min(inputs.arrived, 1 - 1 / only.workers) if only is not None else 0.0
    of_others = AttributedTime(Cause.STATE_RECEIVED, Limit.GATHER, gathered, f"{text} what other ranks had sent")
    return Claim(left, (AttributedTime(Cause.COPYING, Limit.NONE, spent - gathered, text), of_others))


def own_code(inputs: ClaimInputs, parts: Parts) -> Claim:
    """Claim the CPU time of the thread's own code."""
    text = f"on CPU {_own_code_text(inputs.context, inputs.path.thread)}"
    return _claimed(parts.without(Part.USER), Cause.OWN_CODE, Limit.SERIALIZE, parts.of(Part.USER), text)


def waits(_: ClaimInputs, parts: Parts) -> Claim:
    """Claim the remaining time runnable without a CPU: in the kernel mostly while copying, and in the thread's code."""
    found = (
        AttributedTime(Cause.STARVED, Limit.CPU, spent, WITHOUT_CPU, runnable=spent, work=work)
        for part, work in ((Part.QUEUED, Cause.COPYING), (Part.STARVED, Cause.OWN_CODE))
        if (spent := parts.of(part)) > 0
    )
    return Claim(parts.without(*RUNNABLE), tuple(found))


def _own_code_text(context: CheckpointContext, thread: ThreadMeasure | None) -> str:
    stacks = (context.stacks(thread.pid) if thread is not None else None) or context.stacks()
    own = {name: stacks[name] for name in ("crc", "compress", "pickle", "copy", "gather") if stacks.get(name)}
    if not own:
        return f"in its own code ({'pickling, checksums, compression' if context.is_save else 'unpickling'})"
    name = max(own, key=lambda one: own[one])
    words = {
        "crc": "in zip CRC32" if context.is_save else "in checksums",
        "compress": "compressing" if context.is_save else "decompressing",
        "pickle": "pickling" if context.is_save else "unpickling",
        "copy": "copying tensors",
        "gather": "gathering state",
    }
    return f"{words[name]} ({percent(own[name])} of stack samples)"


def gathering(inputs: ClaimInputs, parts: Parts) -> Claim:
    """Claim sleep outside file calls where state was received over the network."""
    context = inputs.context
    asleep, in_sends = parts.of(Part.NETWORK, *IDLE), parts.of(Part.NETWORK)
    received = max((one.received_bytes for one in context.measures.links), default=0)
    if not asleep or not context.is_save:
        return Claim(parts)
    slight = asleep < SLIGHT * context.span or context.ranks == 1  # then no other rank sent it
    if slight or context.is_remote or received < MOST * context.checkpoint.bytes or not received:
        left = parts.without(Part.NETWORK)
        return _claimed(left, Cause.MESSAGES, Limit.GATHER, in_sends, "waiting in sends and receives")
    text = f"waiting outside file calls, while {size(received)} arrived over the network"
    wakeups, left = parts.claim(_wakeup_seconds(parts, asleep), Part.QUEUED)
    return _claimed(left.without(Part.NETWORK, *IDLE), Cause.STATE_RECEIVED, Limit.GATHER, asleep + wakeups, text)


def lock(inputs: ClaimInputs, parts: Parts) -> Claim:
    """Claim waits in futex(2) while other threads of the process computed: for a lock, or a thread pool.

    Python runs one thread at a time (docs.python.org, "thread state and the global interpreter lock"): all threads of a
    process together then use one core, and each of them waits for the lock in futex(2).
    """
    context, thread, waited = inputs.context, inputs.path.thread, parts.of(Part.LOCK)
    process = inputs.path.process
    if thread is None or process is None or process.busy is None or waited < SLIGHT * context.span or not waited:
        return Claim(parts)
    exact, ran = thread.on_cpu_ns, or_zero(thread.user_ns) + or_zero(thread.system_ns)
    if exact is None and thread.user_ns is None and thread.system_ns is None:
        return Claim(parts)
    others_busy = process.busy * context.span - (ran if exact is None else exact) / NS
    is_blocking, stacks = context.checkpoint.mode is Mode.SYNC, process.stacks or {}
    waits = stacks.get("wait", 0) + stacks.get("gather", 0)  # for data that other threads do not provide
    runs_python = 2 * waits <= sum(stacks.values()) if stacks else is_blocking
    one_core = _ONE_CORE[0] <= process.busy <= _ONE_CORE[1] and runs_python
    worked = others_busy >= max(_LOCKED_SECONDS, max(SLIGHT, MOST * cpu_share(thread)) * waited)
    if not worked or not (one_core or is_blocking):
        return Claim(parts)  # while training continues, the other threads need not work for the waiting one
    how = f"used {others_busy / context.span:.1f} cores"
    how = "were running (all threads together used one core)" if one_core else how
    text = f"waiting for other threads of its process, which {how}"
    return _claimed(parts.without(Part.LOCK), Cause.LOCK if one_core else Cause.THREADS, Limit.SERIALIZE, waited, text)


def paused(inputs: ClaimInputs, parts: Parts) -> Claim:
    """Claim requested sleep: no limit, unless the thread may have polled for other ranks."""
    slept = parts.of(Part.SLEEP)
    if inputs.context.ranks > 1 or not slept:
        return Claim(parts)
    text = "sleeping by its own request: a pause, a rate limit or a polling loop"
    return _claimed(parts.without(Part.SLEEP), Cause.PAUSED, Limit.NONE, slept, text)


def unexplained(inputs: ClaimInputs, parts: Parts) -> Claim:
    """Claim the time that no other claim has explained, with the waits that samples show."""
    if parts.total < _ROUNDING_SECONDS:
        return Claim(parts)
    child = inputs.context.measures.awaited
    found = [
        AttributedTime(cause, None, parts.of(part), f"asleep {words}, not in file calls nor waiting for a CPU")
        for part, (cause, words) in _WAITS.items()
    ]
    if child is not None:
        found = [replace(one, text=one.text.replace("a child process", f"its child `{child}`")) for one in found]
    rest = parts.without(*_WAITS).total
    return Claim(Parts({}), (*found, AttributedTime(Cause.UNEXPLAINED, None, rest, "not explained by any measurement")))


def _claimed(left: Parts, cause: Cause, limit: Limit | None, spent: float, text: str) -> Claim:
    return Claim(left, (AttributedTime(cause, limit, spent, text),) if spent > 0 else ())
