"""The steps that claim time of a critical path: each takes parts, and returns an account and the remaining parts.

Their order is `accounts.ORDER`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ckptprof.diagnose.accounts.outside import deletion_text
from ckptprof.diagnose.accounts.parts import IDLE, STORED, Part, Parts
from ckptprof.diagnose.accounts.path import CriticalPath, had_cpu
from ckptprof.diagnose.accounts.ranks import Straggler, number_of_ranks
from ckptprof.diagnose.accounts.storage import resolve, throttle
from ckptprof.diagnose.accounts.witnesses import could_pass_the_cache
from ckptprof.diagnose.causes import WITHOUT_CPU, Cause, Spent, Wait
from ckptprof.diagnose.sight import MOST, NS, SLIGHT, Sight, seconds, some
from ckptprof.measures import ThreadMeasure
from ckptprof.model import Mode
from ckptprof.units import percent, plural, rate, size
from ckptprof.verdicts import Limit

_LOW_SHARE = 0.04  # of all memory; the default of vm.dirty_ratio is 20 % of what is available
_LOW_BYTES = 256 << 20
_NEARLY = 0.9  # of the level at which the kernel pauses writers: memory is sampled between pauses
MEMORY_SPEED = 200e6  # bytes per second and thread; slower only on a VM whose host has to supply the pages
MANY_FILES = 200
SMALL_FILE_BYTES = 128 << 10
_ROUNDING_SECONDS = 1e-6  # what the rounding of sums leaves is no time; Python 3.12 adds up otherwise than 3.11
_TOUCHED = 1e9  # bytes per second of a copy, for dividing unclassified kernel time when files are many
_OF_NAMES = 0.15  # of the time: then all of it is the cost of many small files
_BUSY = 0.7  # of the time: a device that nothing waits for is idle at times
_EACH_WAITS = (Limit.FLUSH, Limit.SMALL_IO)  # operation by operation
_NAMES = (Part.CREATE, Part.RENAME, Part.METADATA)
OF_EACH_FILE = (*_NAMES, Part.CLOSE, Part.DATA, Part.COPY, Part.USER, Part.STARVED, Part.QUEUED)
MAPPED = (Part.FAULT, Part.KERNEL, Part.REST, Part.DATA, Part.COPY)  # where a mapped restore spends its time
_WORKED = 0.6  # of the time that was waited, others were on a CPU
_LOCKED_SECONDS = 0.1  # of their work: ten ticks of the clock by which processes are charged
_ONE_CORE = (0.7, 1.3)  # cores of a process whose threads run one at a time, including its kernel calls


@dataclass(frozen=True)
class Known:
    """The input of a claim besides the parts."""

    sight: Sight
    path: CriticalPath
    late: Straggler | None
    deleted: float  # seconds of deletion within the span


class Claim(NamedTuple):
    """The result of a step: accounts, and the remaining parts."""

    left: Parts
    spent: tuple[Spent, ...] = ()
    storage: Wait | None = None  # what storage was waited for
    on_cpu: float = 0.0  # seconds on CPU that are part of such a wait now


def deletion(known: Known, parts: Parts) -> Claim:
    """Claim the deletion of old checkpoints: its calls, and waits while other processes deleted."""
    spent, left = parts.take(known.deleted, Part.UNLINK, Part.REST, Part.LOCK, Part.SLEEP)
    return _claimed(left, Cause.DELETION, Limit.CLEAN_UP, spent, deletion_text(known.sight))


def late_rank(known: Known, parts: Parts) -> Claim:
    """Claim the time by which the last rank was late: from waits first, then from all parts in proportion."""
    if known.late is None:
        return Claim(parts)
    waited, left = parts.take(known.late.seconds, Part.REST, Part.LOCK, Part.SLEEP)
    worked, left = left.take_alike(known.late.seconds - waited)
    return _claimed(left, Cause.LATE_RANK, Limit.STRAGGLER, waited + worked, known.late.text)


def kernel(known: Known, parts: Parts) -> Claim:
    """Divide other kernel time into copying and creating files; without call times by the number of files."""
    sight, spent = known.sight, parts.of(Part.KERNEL)
    if sight.mapped and not sight.writes:
        return Claim(parts)  # page faults
    told = sum(some(one.creates) for one in sight.measures.threads)
    is_uncounted = 0 < told < MOST * _files(sight)  # of ten thousand new files a second the trace drops the rest
    if _many_small(sight) and (not known.path.time.exact or is_uncounted):
        names = max(0.0, spent - sight.moved / _TOUCHED)
        parts = parts.move(names, Part.KERNEL, Part.CREATE)
    return Claim(parts.move(spent, Part.KERNEL, Part.COPY))


def _many_small(sight: Sight) -> bool:
    files = _files(sight)
    return files >= MANY_FILES and sight.moved / files < SMALL_FILE_BYTES


def _files(sight: Sight) -> float:
    return max(sight.checkpoint.files, some(sight.checkpoint.metadata.created))


def names(known: Known, parts: Parts) -> Claim:
    """Claim the time in file name operations; for many small files all time that is spent per file."""
    sight, spent, files = known.sight, parts.of(*_NAMES), _files(known.sight)
    if spent <= 0:
        return Claim(parts)
    whole = parts.without(Part.QUEUED, Part.STARVED).total
    taken = OF_EACH_FILE if _many_small(sight) and spent >= _OF_NAMES * whole else _NAMES
    text = "creating and renaming" if sight.writes else "opening"
    if sight.writes and parts.of(Part.METADATA) > MOST * spent:
        text = "looking up"
    if files >= MANY_FILES:
        text = f"{text} {plural(int(files), 'file')} of {size(sight.moved / files)} each"
    else:
        text = f"{text} files"
    return _claimed(parts.without(*taken), Cause.NAMES, Limit.METADATA, parts.of(*taken), text)


def past_the_cache(known: Known, parts: Parts) -> Claim:
    """Assign the CPU time of calls that bypass the page cache to their I/O."""
    spent = parts.of(Part.COPY) if known.sight.direct else 0.0
    return Claim(parts.move(spent, Part.COPY, Part.DATA), on_cpu=spent)


def dirty(known: Known, parts: Parts) -> Claim:
    """Claim pauses by the dirty page limit if it is set too low; otherwise the pauses are waits for storage.

    A limit on the device also applies while the thread waits for a CPU.
    """
    sight = known.sight
    lowered, threshold = _is_lowered(sight), sight.memory.dirty_threshold_bytes
    paused, left = parts.take(_paused_seconds(known, lowered=lowered), Part.DATA)
    if not lowered or not paused:
        waiting = parts.of(*STORED) - paused
        return Claim(parts.move(_paced(sight, parts, waiting), Part.QUEUED, Part.DATA))
    paced, left = left.take(_paced(sight, parts, paused), Part.QUEUED)
    text = f"blocked by the limit on dirty pages ({size(threshold)}, checkpoint {size(sight.moved)})"
    return _claimed(left, Cause.DIRTY, Limit.PAGE_CACHE, paused + paced, text)


def _is_lowered(sight: Sight) -> bool:
    """Check whether the dirty page limit is at fault: small compared with the checkpoint, which fits into memory."""
    memory = sight.memory
    threshold, total, available = memory.dirty_threshold_bytes, memory.total_bytes, memory.available_min_bytes
    if threshold is None or threshold >= sight.moved:
        return False
    if available is not None and available + threshold < sight.moved:
        return False
    return threshold < (_LOW_SHARE * total if total else _LOW_BYTES)


def _paused_seconds(known: Known, *, lowered: bool) -> float:
    """Estimate the pauses of the critical thread by the dirty page limit; they are part of its sleep in data calls."""
    sight, thread, asleep = known.sight, known.path.thread, known.path.time.parts.of(Part.DATA)
    if not sight.writes or sight.direct or not asleep:
        return 0.0
    threshold, dirtied = sight.memory.dirty_threshold_bytes, sight.memory.dirty_max_bytes
    # The kernel starts to pause writers halfway to the threshold
    holds = (some(threshold) + some(sight.memory.dirty_background_bytes)) / 2 * _NEARLY
    at_threshold = bool(threshold) and dirtied is not None and dirtied >= holds
    if lowered and at_threshold:
        return asleep  # the rest of the sleep was waiting for pages under writeback
    process = known.path.process
    held = seconds(process.dirty_pause_ns) if process is not None else None
    if held is None or process is None or thread is None:
        return asleep if at_threshold and not sight.remote else 0.0
    return min(asleep, held * (min(1.0, thread.bytes / process.bytes) if process.bytes else 1.0))


def _paced(sight: Sight, parts: Parts, waiting: float) -> float:
    bound = throttle(sight, waiting + parts.of(Part.QUEUED)) if waiting > 0 else None
    return 0.0 if bound is None else min(bound.least, sight.span) - waiting


def faults(known: Known, parts: Parts) -> Claim:
    """Claim page faults of a mapped restore.

    For a remote file the time is left to the storage step if the network was at its limit, as for reads.
    """
    sight = known.sight
    if not sight.mapped or sight.writes:
        return Claim(parts)
    asleep = parts.of(Part.FAULT, Part.REST, Part.DATA)
    if asleep > 0 and sight.remote and resolve(sight, data=asleep, sync=0.0, waiting=asleep).limit is Limit.NETWORK:
        on_cpu = parts.of(Part.KERNEL, Part.COPY)
        return Claim(parts.without(*MAPPED).plus({Part.DATA: asleep, Part.COPY: on_cpu}))
    major = sum(some(one.major_faults) for one in sight.measures.processes)
    if not major and sight.checkpoint.cache == "warm":
        return Claim(parts.move(parts.of(Part.KERNEL), Part.KERNEL, Part.FAULT))
    spent, left = parts.of(*MAPPED), parts.without(*MAPPED)
    if spent <= 0:
        return Claim(left)
    woken, left = left.take(_woken(left, spent), Part.QUEUED)
    text = (
        f"in {plural(int(major), 'major page fault')} of a mapped file" if major else "in page faults of a mapped file"
    )
    return _claimed(left, Cause.FAULTS, Limit.PAGE_FAULT, spent + woken, text)


def _woken(parts: Parts, asleep: float) -> float:
    at_work = parts.of(Part.COPY, Part.KERNEL)
    return parts.of(Part.QUEUED) * asleep / (asleep + at_work)


def unknown_wait(known: Known, parts: Parts) -> Claim:
    """Assign sleep without samples to storage if the storage was at its limit."""
    sight, rest = known.sight, parts.of(Part.REST)
    if known.path.time.calls_known or rest <= 0 or not sight.device_bytes:
        return Claim(parts)
    at_limit = throttle(sight, rest) is not None or (sight.device_busy or 0.0) >= _BUSY
    is_theirs = at_limit and sight.device_bytes >= MOST * sight.moved
    return Claim(parts.move(rest, Part.REST, Part.DATA) if is_theirs else parts)


def stored(known: Known, parts: Parts) -> Claim:
    """Claim the time asleep in reads, writes, syncs and closes, with the storage that it waited for."""
    waiting, left = parts.of(*STORED), parts.without(*STORED)
    if waiting <= 0:
        return Claim(left)
    found = resolve(known.sight, data=parts.of(Part.DATA), sync=parts.of(Part.SYNC), waiting=waiting)
    woken, left = left.take(_woken(left, waiting) if found.limit in _EACH_WAITS else 0.0, Part.QUEUED)
    return Claim(left, (Spent(found.cause, found.limit, waiting + woken, found.text),), found)


def queued(_: Known, parts: Parts) -> Claim:
    """Claim the time runnable in the kernel without a CPU."""
    spent = parts.of(Part.QUEUED)
    return _claimed(
        parts.without(Part.QUEUED), Cause.QUEUED, Limit.CPU, spent, "runnable inside a system call, waiting for a CPU"
    )


def copying(known: Known, parts: Parts) -> Claim:
    """Claim the CPU time of copying data; it is no limit at the speed of memory."""
    sight = known.sight
    taken = (Part.COPY,) if sight.mapped else (Part.COPY, Part.FAULT)
    spent, left = parts.of(*taken), parts.without(*taken)
    if spent <= 0:
        return Claim(left)
    speed = sight.moved / max(1, int(some(sight.checkpoint.ranks))) / spent
    thread = max((one.bytes for one in sight.measures.threads), default=0.0)
    speed = max(speed, thread / spent)
    way = "into" if sight.writes else "out of"
    passed_by = could_pass_the_cache(sight)
    slow = sight.writes and (speed < MEMORY_SPEED or passed_by)
    text = f"copying {way} the page cache at {rate(speed)}" + (
        ", while its servers were mostly idle" if passed_by else ""
    )
    return _claimed(left, Cause.COPYING, Limit.PAGE_CACHE if slow else Limit.NONE, spent, text)


def own_code(known: Known, parts: Parts) -> Claim:
    """Claim the CPU time of the thread's own code."""
    text = f"on CPU {_in_what(known.sight, known.path.thread)}"
    return _claimed(parts.without(Part.USER), Cause.OWN_CODE, Limit.SERIALIZE, parts.of(Part.USER), text)


def starved(_: Known, parts: Parts) -> Claim:
    """Claim the time in which the thread's own code waited for a CPU."""
    spent = parts.of(Part.STARVED)
    return _claimed(parts.without(Part.STARVED), Cause.STARVED, Limit.CPU, spent, WITHOUT_CPU)


def _in_what(sight: Sight, thread: ThreadMeasure | None) -> str:
    stacks = (sight.stacks(thread.pid) if thread is not None else None) or sight.stacks()
    own = {name: stacks[name] for name in ("crc", "compress", "pickle", "copy", "gather") if stacks.get(name)}
    if not own:
        return "in its own code (pickling, checksums, compression)" if sight.writes else "in its own code (unpickling)"
    name = max(own, key=lambda one: own[one])
    words = {
        "crc": "in zip CRC32" if sight.writes else "in checksums",
        "compress": "compressing" if sight.writes else "decompressing",
        "pickle": "pickling" if sight.writes else "unpickling",
        "copy": "copying tensors",
        "gather": "gathering state",
    }
    return f"{words[name]} ({percent(own[name])} of its stack samples)"


def gathering(known: Known, parts: Parts) -> Claim:
    """Claim sleep outside file calls where state was received over the network."""
    sight = known.sight
    asleep, looked = parts.of(Part.NETWORK, *IDLE), parts.of(Part.NETWORK)
    came = max((one.received_bytes for one in sight.measures.links), default=0)
    if not asleep or not sight.writes:
        return Claim(parts)
    slight = asleep < SLIGHT * sight.span or number_of_ranks(sight) == 1  # then no other rank sent it
    if slight or sight.remote or came < MOST * sight.checkpoint.bytes or not came:
        left = parts.without(Part.NETWORK)
        return _claimed(left, Cause.MESSAGES, Limit.GATHER, looked, "waiting in sends and receives")
    text = f"waiting outside file calls, while {size(came)} arrived over the network"
    return _claimed(parts.without(Part.NETWORK, *IDLE), Cause.CAME_IN_MEANWHILE, Limit.GATHER, asleep, text)


def lock(known: Known, parts: Parts) -> Claim:
    """Claim waits in futex(2) while other threads of the process computed: for a lock, or a thread pool.

    Python runs one thread at a time (docs.python.org, "thread state and the global interpreter lock"): all threads of a
    process together then use one core, and each of them waits for the lock in futex(2).
    """
    sight, thread, waited = known.sight, known.path.thread, parts.of(Part.LOCK)
    process = known.path.process
    if thread is None or process is None or process.busy is None or waited < SLIGHT * sight.span or not waited:
        return Claim(parts)
    exact, ran = thread.on_cpu_ns, some(thread.user_ns) + some(thread.system_ns)
    if exact is None and thread.user_ns is None and thread.system_ns is None:
        return Claim(parts)
    beside = process.busy * sight.span - (ran if exact is None else exact) / NS
    held, stacks = sight.checkpoint.mode is Mode.SYNC, process.stacks or {}
    waits = stacks.get("wait", 0) + stacks.get("gather", 0)  # for what other threads do not bring
    runs_python = 2 * waits <= sum(stacks.values()) if stacks else held
    one_core = _ONE_CORE[0] <= process.busy <= _ONE_CORE[1] and runs_python
    worked = beside >= max(_LOCKED_SECONDS, max(SLIGHT, _WORKED * had_cpu(thread)) * waited)
    if not worked or not (one_core or held):
        return Claim(parts)  # while training continues, the other threads need not work for the waiting one
    how = "were running (all threads together used one core)" if one_core else f"used {beside / sight.span:.1f} cores"
    text = f"waiting for other threads of its process, which {how}"
    return _claimed(parts.without(Part.LOCK), Cause.LOCK if one_core else Cause.THREADS, Limit.SERIALIZE, waited, text)


def paused(known: Known, parts: Parts) -> Claim:
    """Claim requested sleep: no limit, unless the thread may have polled for other ranks."""
    asked = parts.of(Part.SLEEP)
    if number_of_ranks(known.sight) > 1 or not asked:
        return Claim(parts)
    text = "sleeping by its own request: a pause, a rate limit or a polling loop"
    return _claimed(parts.without(Part.SLEEP), Cause.PAUSED, Limit.NONE, asked, text)


def unexplained(_: Known, parts: Parts) -> Claim:
    """Claim the remaining time."""
    spent = parts.total
    if spent < _ROUNDING_SECONDS:
        return Claim(parts)
    return _claimed(Parts({}), Cause.UNEXPLAINED, None, spent, "not explained by any measurement")


def _claimed(left: Parts, cause: Cause, limit: Limit | None, spent: float, text: str) -> Claim:
    return Claim(left, (Spent(cause, limit, spent, text),) if spent > 0 else ())
