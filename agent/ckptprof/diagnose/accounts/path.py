"""The critical path: the rank and the thread that ended last, and the parts of its time until then.

The parts of a thread exclude each other and add up to its span. They are exact where calls are timed, else estimated
from samples.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ckptprof.diagnose.accounts.parts import BUSY, CALLS, IDLE, Part, Parts
from ckptprof.diagnose.context import CheckpointContext, or_zero, seconds
from ckptprof.diagnose.tolerances import HARDLY_ANY, LITTLE, MOMENT_SECONDS, MOST
from ckptprof.measures import ProcessMeasure, ThreadMeasure
from ckptprof.model import Stream
from ckptprof.units import NS

_ASLEEP = (Part.FAULT, Part.NETWORK, Part.METADATA, Part.STOPPED, *IDLE)  # by samples, outside calls
_SAMPLE_NAMES = {**{part: part.value for part in (*CALLS, *_ASLEEP)}, Part.REST: "other"}  # of a part
_PIECES = 16  # of the path, at most


@dataclass(frozen=True)
class ThreadBreakdown:
    """The parts of a thread's span, and how reliable they are."""

    parts: Parts
    is_exact: bool  # from call times, not samples
    samples: int  # that the estimate rests on
    cpu_known: bool = True
    calls_known: bool = True


def time_of(thread: ThreadMeasure, start_ns: int, end_ns: int) -> ThreadBreakdown:
    """Divide the span of a thread, cut to the one given, into parts."""
    whole = max(0, thread.end_ns - thread.start_ns) / NS
    span = max(0, min(thread.end_ns, end_ns) - max(thread.start_ns, start_ns)) / NS
    if whole <= 0 or span <= 0:
        return ThreadBreakdown(Parts({}), is_exact=False, samples=0)
    calls = {part: seconds(getattr(thread, f"{part.value}_call_ns")) for part in CALLS}
    if any(value is not None for value in calls.values()):
        found = _traced(thread, {part: value or 0.0 for part, value in calls.items()}, whole)
    else:
        found = _polled(thread, whole)
    share = span / whole
    return replace(found, parts=found.parts.scaled(share))


def _cpu(thread: ThreadMeasure) -> tuple[float | None, float | None, float]:
    """Return (user, system, waiting for a CPU) in seconds; ticks are corrected by the exact time on CPU."""
    user, system = seconds(thread.user_ns), seconds(thread.system_ns)
    exact = seconds(thread.on_cpu_ns)
    if user is not None and system is not None and exact is not None and user + system > 0:
        user, system = exact * user / (user + system), exact * system / (user + system)
    return user, system, seconds(thread.runqueue_ns) or 0.0


def _traced(thread: ThreadMeasure, calls: dict[Part, float], whole: float) -> ThreadBreakdown:
    user, system, starved = _cpu(thread)
    total = sum(calls.values())
    if total > whole:
        calls = {part: value * whole / total for part, value in calls.items()}
        total = whole
    exact = seconds(thread.on_cpu_ns)
    cpu_known = user is not None or system is not None or exact is not None
    if user is None and system is None and exact is not None:
        user, system = max(0.0, exact - total), min(exact, total)
    own, kernel = or_zero(user), or_zero(system)
    waiting_out = _in_own_code(starved, own, kernel, max(0.0, total - kernel))
    outside_calls = whole - total
    own = min(own, outside_calls)
    waiting_out = min(waiting_out, outside_calls - own)
    in_calls = min(kernel, total)
    outside = min(kernel - in_calls, outside_calls - own - waiting_out)
    copy = min(calls[Part.DATA], in_calls)
    preempted = min(calls[Part.DATA] - copy, starved - waiting_out)  # preempted while copying, or late to wake up
    on_cpu = {Part.COPY: copy, Part.USER: own, Part.KERNEL: outside, Part.STARVED: waiting_out}
    parts = {**calls, Part.DATA: calls[Part.DATA] - copy - preempted, **on_cpu}
    rest = max(0.0, whole - sum(parts.values()) - preempted)
    late = min(rest, max(0.0, starved - waiting_out - preempted))
    parts[Part.QUEUED] = preempted + late
    return ThreadBreakdown(
        Parts(parts).plus(_asleep(thread, rest - late)),
        is_exact=True,
        samples=int(or_zero(thread.samples)),
        cpu_known=cpu_known,
    )


def _in_own_code(starved: float, user: float, system: float, asleep: float) -> float:
    whole = user + system + asleep
    return min(starved, starved * user / whole) if whole > 0 else 0.0


def _asleep(thread: ThreadMeasure, rest: float) -> dict[Part, float]:
    """Divide the time outside calls by samples; opening existing files is not timed, so samples cover it too."""
    samples = _samples_by_part(thread, _ASLEEP if thread.create_call_ns else (*_ASLEEP, Part.CREATE))
    total = sum(samples.values())
    return {part: rest * count / total for part, count in samples.items()} if total else {Part.REST: rest}


def _samples_by_part(thread: ThreadMeasure, parts: tuple[Part, ...]) -> dict[Part, float]:
    samples = {part: or_zero((thread.samples_by_state or {}).get(_SAMPLE_NAMES[part])) for part in parts}
    return {part: count for part, count in samples.items() if count}


def _polled(thread: ThreadMeasure, whole: float) -> ThreadBreakdown:
    user, system, starved = _cpu(thread)
    exact = seconds(thread.on_cpu_ns)
    by_part = _samples_by_part(thread, tuple(_SAMPLE_NAMES))
    running = or_zero((thread.samples_by_state or {}).get("running"))
    asleep_samples, samples = sum(by_part.values()), sum(by_part.values()) + running
    parts: dict[Part, float] = {}
    cpu_known = user is not None or system is not None
    if cpu_known:
        asleep = max(0.0, whole - or_zero(user) - or_zero(system) - starved)
        waiting = _in_own_code(starved, or_zero(user), or_zero(system), asleep)
        parts = {
            Part.USER: or_zero(user),
            Part.KERNEL: or_zero(system),
            Part.STARVED: waiting,
            Part.QUEUED: starved - waiting,
        }
    elif exact is not None:
        parts = {Part.CPU: exact, Part.QUEUED: starved}
    elif samples:
        parts = {Part.CPU: whole * running / samples}
    used = sum(parts.values())
    if used > whole:
        parts = {part: value * whole / used for part, value in parts.items()}
    left = max(0.0, whole - sum(parts.values()))
    if asleep_samples:
        parts |= {part: left * count / asleep_samples for part, count in by_part.items()}
    else:
        blocked = min(left, seconds(thread.block_delay_ns) or 0.0)
        parts |= {Part.DATA: blocked, Part.REST: left - blocked}
    known = bool(asleep_samples) or left < LITTLE * whole or bool(parts.get(Part.DATA))
    return ThreadBreakdown(Parts(parts), is_exact=False, samples=int(samples), cpu_known=cpu_known, calls_known=known)


@dataclass(frozen=True)
class Rank:
    """A process that transferred bytes, and when most of them had been transferred."""

    pid: int
    bytes: float
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class CriticalPath:
    """The parts of the time from the start of a checkpoint to its end."""

    time: ThreadBreakdown
    thread: ThreadMeasure | None
    process: ProcessMeasure | None  # of the thread
    writer_threads: int  # threads of its process that wrote alongside, itself included


def ranks(context: CheckpointContext) -> tuple[Rank, ...]:
    """Return the processes that transferred bytes, by their end; small files at the end do not count."""
    whole = context.checkpoint
    latest_ns = max(whole.end_ns, whole.start_ns)
    movers = {
        one.pid: (one.bytes, one.start_ns or whole.start_ns, one.end_ns or whole.end_ns)
        for one in whole.writers
        if one.bytes
    }
    for one in context.measures.processes:
        if one.bytes and one.first_ns is not None and one.last_ns is not None:
            movers[one.pid] = one.bytes, one.first_ns, one.last_ns
    streams: dict[int, list[Stream]] = {}
    for stream in whole.streams:
        if stream.bytes:
            streams.setdefault(stream.pid, []).append(stream)
    found = []
    for pid, (transferred, first_ns, last_ns) in movers.items():
        bulk = [one for one in streams.get(pid, ()) if one.bytes >= HARDLY_ANY * transferred]
        start_ns = min((one.start_ns for one in bulk), default=first_ns)
        end_ns = min(last_ns, max((one.end_ns for one in bulk), default=last_ns))
        within = [min(max(at_ns, whole.start_ns), latest_ns) for at_ns in (start_ns, end_ns)]
        found.append(Rank(pid, transferred, *within))
    return tuple(sorted(found, key=lambda one: (one.end_ns, one.bytes)))


def critical(context: CheckpointContext) -> CriticalPath:
    """Divide the span of a checkpoint into the parts of its critical thread, and of others where it was idle."""
    threads = [one for one in context.measures.threads if one.end_ns > one.start_ns]
    thread = _critical_thread(context, threads)
    start_ns, end_ns = context.checkpoint.start_ns, max(context.checkpoint.end_ns, context.checkpoint.start_ns)
    if thread is None:
        nothing = ThreadBreakdown(Parts({Part.REST: context.span}), is_exact=False, samples=0, calls_known=False)
        return CriticalPath(nothing, None, None, 0)
    own = time_of(thread, start_ns, end_ns)
    first_ns, last_ns = max(start_ns, thread.start_ns), min(end_ns, thread.end_ns)
    others = [one for one in threads if one is not thread]
    parts, gaps = own.parts, [(start_ns, first_ns), (last_ns, end_ns)]
    if last_ns <= first_ns:
        parts, gaps = Parts({}), [(start_ns, end_ns)]
    for gap in gaps:
        parts = parts.plus(_filled(gap, others, thread.pid))
    writers = [one for one in others if one.pid == thread.pid and one.bytes >= LITTLE * thread.bytes]
    process = next((one for one in context.measures.processes if one.pid == thread.pid), None)
    return CriticalPath(replace(own, parts=_with_stored_names(parts, context.files)), thread, process, len(writers) + 1)


def _with_stored_names(parts: Parts, files: float) -> Parts:
    """Separate creates and renames that are slow each: what stores them is slow, not their number."""
    spent = parts.of(Part.CREATE, Part.RENAME)
    if not files or spent < max(MOMENT_SECONDS * files, parts.of(Part.METADATA)):
        return parts
    return parts.without(Part.CREATE, Part.RENAME).plus({Part.STORED_NAMES: spent})


def _critical_thread(context: CheckpointContext, threads: list[ThreadMeasure]) -> ThreadMeasure | None:
    found = ranks(context)
    for rank in reversed(found):
        mine = [one for one in threads if one.pid == rank.pid]
        if mine and rank.bytes >= HARDLY_ANY * max(context.transferred_bytes, 1) / max(1, len(found)):
            return foremost(mine)
    return foremost(threads)


def foremost(threads: list[ThreadMeasure]) -> ThreadMeasure | None:
    """Return the thread with most bytes; of several with similar bytes the last one."""
    most = max((one.bytes for one in threads), default=0.0)
    largest = [one for one in threads if one.bytes >= MOST * most]
    return max(largest, key=lambda one: (one.end_ns, one.bytes), default=None)


def _filled(gap: tuple[int, int], threads: list[ThreadMeasure], pid: int) -> dict[Part, float]:
    """Return the parts of other threads in a time in which the critical thread was idle; `REST`: no thread ran."""
    parts: dict[Part, float] = {}
    open_ = [gap]
    for _ in range(_PIECES):
        covered = [  # a thread of the same process first, then the one that covers most of a gap
            ((one.pid == pid, end_ns - start_ns), piece, (start_ns, end_ns), one)
            for piece in open_
            for one in threads
            for start_ns, end_ns in [(max(piece[0], one.start_ns), min(piece[1], one.end_ns))]
            if end_ns > start_ns
        ]
        if not covered:
            break
        _, piece, (start_ns, end_ns), thread = max(covered, key=lambda one: one[0])
        open_.remove(piece)
        open_ += [(piece[0], start_ns), (end_ns, piece[1])]
        length = (end_ns - start_ns) / NS
        whole = time_of(thread, thread.start_ns, thread.end_ns).parts
        busy = whole.of(*BUSY)
        factor = min(1.0, length / busy) if busy else 0.0
        for part in BUSY:
            parts[part] = parts.get(part, 0.0) + whole.of(part) * factor
        parts[Part.REST] = parts.get(Part.REST, 0.0) + max(0.0, length - busy * factor)
    parts[Part.REST] = parts.get(Part.REST, 0.0) + sum(max(0, end - start) for start, end in open_) / NS
    return parts


def cpu_share(thread: ThreadMeasure | None) -> float:
    """Return the share of its runnable time in which a thread had a CPU; processes alongside have the same share."""
    if thread is None:
        return 1.0
    exact = thread.on_cpu_ns
    ran = or_zero(thread.user_ns) + or_zero(thread.system_ns) if exact is None else exact
    wanted = ran + or_zero(thread.runqueue_ns)
    return ran / wanted if wanted > 0 else 1.0
