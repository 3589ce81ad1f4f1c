"""What one thread did with its span: exclusive parts that add up to it, exact from call times, else from looks."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ckptprof.diagnose.accounts.parts import CALLS, Part, Parts
from ckptprof.diagnose.sight import NS, seconds, some
from ckptprof.measures import ThreadMeasure

_ASLEEP = (Part.FAULT, Part.NETWORK, Part.LOCK, Part.SLEEP, Part.METADATA, Part.REST)  # by looks, outside of calls
_LOOKED = {**{part: part.value for part in (*CALLS, *_ASLEEP)}, Part.REST: "other"}  # the name that looks have for it
_SLACK = 1.05  # clocks of different resolution
_LITTLE = 0.2  # of the span: what is left then is too short for a verdict to turn on it


@dataclass(frozen=True)
class ThreadTime:
    """The parts of a thread's span, and how well they are known."""

    parts: Parts
    exact: bool  # call times, not looks
    looks: int  # that the estimate rests on
    surplus: float = 0.0  # seconds by which the numbers exceed the span: they disagree
    cpu_known: bool = True
    calls_known: bool = True


def time_of(thread: ThreadMeasure, start_ns: int, end_ns: int) -> ThreadTime:
    """Return what a thread did within its span, cut to the one given."""
    whole = max(0, thread.end_ns - thread.start_ns) / NS
    span = max(0, min(thread.end_ns, end_ns) - max(thread.start_ns, start_ns)) / NS
    if whole <= 0 or span <= 0:
        return ThreadTime(Parts({}), exact=False, looks=0)
    calls = {part: seconds(getattr(thread, f"{part.value}_call_ns")) for part in CALLS}
    if any(value is not None for value in calls.values()):
        found = _traced(thread, {part: value or 0.0 for part, value in calls.items()}, whole)
    else:
        found = _polled(thread, whole)
    share = span / whole
    return replace(found, parts=found.parts.scaled(share), surplus=found.surplus * share)


def _cpu(thread: ThreadMeasure) -> tuple[float | None, float | None, float]:
    """Return (user, system, waiting for a CPU) in seconds; ticks are corrected by the exact time on CPU."""
    user, system = seconds(thread.user_ns), seconds(thread.system_ns)
    exact = seconds(thread.on_cpu_ns)
    if user is not None and system is not None and exact is not None and user + system > 0:
        user, system = exact * user / (user + system), exact * system / (user + system)
    return user, system, seconds(thread.runqueue_ns) or 0.0


def _traced(thread: ThreadMeasure, calls: dict[Part, float], whole: float) -> ThreadTime:
    user, system, starved = _cpu(thread)
    total = sum(calls.values())
    asked = total + some(user)
    if total > whole:
        calls = {part: value * whole / total for part, value in calls.items()}
        total = whole
    exact = seconds(thread.on_cpu_ns)
    cpu_known = user is not None or system is not None or exact is not None
    if user is None and system is None and exact is not None:
        user, system = max(0.0, exact - total), min(exact, total)
    own, kernel = some(user), some(system)
    waiting_out = _in_own_code(starved, own, kernel, max(0.0, total - kernel))
    room = whole - total
    own = min(own, room)
    waiting_out = min(waiting_out, room - own)
    in_calls = min(kernel, total)
    outside = min(kernel - in_calls, room - own - waiting_out)
    copy = min(calls[Part.DATA], in_calls)
    held = min(calls[Part.DATA] - copy, starved - waiting_out)  # preempted while copying, or late to wake up
    on_cpu = {Part.COPY: copy, Part.USER: own, Part.KERNEL: outside, Part.STARVED: waiting_out}
    parts = {**calls, Part.DATA: calls[Part.DATA] - copy - held, **on_cpu}
    rest = max(0.0, whole - sum(parts.values()) - held)
    late = min(rest, max(0.0, starved - waiting_out - held))
    parts[Part.QUEUED] = held + late
    return ThreadTime(
        Parts(parts).plus(_asleep(thread, rest - late)),
        exact=True,
        looks=int(some(thread.looks)),
        surplus=max(0.0, asked / _SLACK - whole),
        cpu_known=cpu_known,
    )


def _in_own_code(starved: float, user: float, system: float, asleep: float) -> float:
    """Return the part of the wait for a CPU that own code had: a thread that sleeps waits for one when it wakes up."""
    whole = user + system + asleep
    return min(starved, starved * user / whole) if whole > 0 else 0.0


def _asleep(thread: ThreadMeasure, rest: float) -> dict[Part, float]:
    """Split the time outside of calls by what looks saw there; opening what is there already is not timed."""
    seen = _seen(thread, _ASLEEP if thread.create_call_ns else (*_ASLEEP, Part.CREATE))
    total = sum(seen.values())
    return {part: rest * looks / total for part, looks in seen.items()} if total else {Part.REST: rest}


def _seen(thread: ThreadMeasure, parts: tuple[Part, ...]) -> dict[Part, float]:
    """Return how many looks saw a thread in each of these."""
    looks = {part: some((thread.looks_in or {}).get(_LOOKED[part])) for part in parts}
    return {part: count for part, count in looks.items() if count}


def _polled(thread: ThreadMeasure, whole: float) -> ThreadTime:
    user, system, starved = _cpu(thread)
    exact = seconds(thread.on_cpu_ns)
    seen = _seen(thread, tuple(_LOOKED))
    running = some((thread.looks_in or {}).get("running"))
    asleep_looks, looks = sum(seen.values()), sum(seen.values()) + running
    parts: dict[Part, float] = {}
    cpu_known = user is not None or system is not None
    if cpu_known:
        asleep = max(0.0, whole - some(user) - some(system) - starved)
        waiting = _in_own_code(starved, some(user), some(system), asleep)
        parts = {
            Part.USER: some(user),
            Part.KERNEL: some(system),
            Part.STARVED: waiting,
            Part.QUEUED: starved - waiting,
        }
    elif exact is not None:
        parts = {Part.CPU: exact, Part.QUEUED: starved}
    elif looks:
        parts = {Part.CPU: whole * running / looks}
    used = sum(parts.values())
    if used > whole:
        parts = {part: value * whole / used for part, value in parts.items()}
    left = max(0.0, whole - sum(parts.values()))
    if asleep_looks:
        parts |= {part: left * count / asleep_looks for part, count in seen.items()}
    else:
        blocked = min(left, seconds(thread.block_delay_ns) or 0.0)
        parts |= {Part.DATA: blocked, Part.REST: left - blocked}
    known = bool(asleep_looks) or left < _LITTLE * whole or bool(parts.get(Part.DATA))
    return ThreadTime(
        Parts(parts),
        exact=False,
        looks=int(looks),
        surplus=max(0.0, used / _SLACK - whole),
        cpu_known=cpu_known,
        calls_known=known,
    )
