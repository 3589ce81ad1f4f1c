"""What one thread did with its span: exclusive parts that add up to it, exact from call times, else from looks."""

from __future__ import annotations

from dataclasses import dataclass

from ckptprof.diagnose.sight import NS, number, seconds, some
from ckptprof.measures import ThreadMeasure

CALLS = ("data", "sync", "close", "create", "rename", "unlink")
# Besides these: `user` on CPU in its own code, `starved` runnable without a CPU, `queued` the same
# in the kernel, `copy` on CPU in data calls, `kernel`
# on CPU in the kernel outside of known calls, `cpu` on CPU and nothing tells in what, `fault`, `network`, `lock`,
# `sleep` as looks saw it asleep, `metadata` looks in stat and the like, `rest` asleep and nothing tells why.
BUSY = (*CALLS, "metadata", "user", "starved", "queued", "copy", "kernel", "cpu", "fault", "network")
_LOOKS = (*CALLS, "metadata", "fault", "network", "lock", "sleep", "other")
_SLACK = 1.05  # clocks of different resolution


@dataclass(frozen=True)
class Parts:
    """Seconds by what they were spent in; `data`, `sync` and the like are the time asleep in these calls."""

    seconds: dict[str, float]
    exact: bool  # call times, not looks
    looks: int  # that the estimate rests on
    surplus: float = 0.0  # seconds by which the numbers exceed the span: they disagree
    cpu_known: bool = True
    calls_known: bool = True

    @property
    def total(self) -> float:
        """All of it: the thread's span."""
        return sum(self.seconds.values())

    def of(self, *names: str) -> float:
        """Return the seconds of some parts."""
        return sum(self.seconds.get(name, 0.0) for name in names)

    def scaled(self, factor: float) -> dict[str, float]:
        """Return each part times a factor."""
        return {name: value * factor for name, value in self.seconds.items()}


def parts_of(thread: ThreadMeasure, start_ns: int, end_ns: int) -> Parts:
    """Return what a thread did within its span, cut to the one given."""
    whole = max(0, thread.end_ns - thread.start_ns) / NS
    span = max(0, min(thread.end_ns, end_ns) - max(thread.start_ns, start_ns)) / NS
    if whole <= 0 or span <= 0:
        return Parts({}, exact=False, looks=0)
    calls = {name: seconds(getattr(thread, f"{name}_call_ns")) for name in CALLS}
    if any(value is not None for value in calls.values()):
        found = _traced(thread, {name: value or 0.0 for name, value in calls.items()}, whole)
    else:
        found = _polled(thread, whole)
    share = span / whole
    return Parts(
        found.scaled(share), found.exact, found.looks, found.surplus * share, found.cpu_known, found.calls_known
    )


def _cpu(thread: ThreadMeasure) -> tuple[float | None, float | None, float]:
    """Return (user, system, waiting for a CPU) in seconds; ticks are corrected by the exact time on CPU."""
    user, system = seconds(thread.user_ns), seconds(thread.system_ns)
    exact = seconds(thread.on_cpu_ns)
    if user is not None and system is not None and exact is not None and user + system > 0:
        user, system = exact * user / (user + system), exact * system / (user + system)
    return user, system, seconds(thread.runqueue_ns) or 0.0


def _traced(thread: ThreadMeasure, calls: dict[str, float], whole: float) -> Parts:
    user, system, starved = _cpu(thread)
    total = sum(calls.values())
    asked = total + some(user)
    if total > whole:
        calls = {name: value * whole / total for name, value in calls.items()}
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
    copy = min(calls["data"], in_calls)
    held = min(calls["data"] - copy, starved - waiting_out)  # preempted while copying, or late to wake up
    parts = {**calls, "data": calls["data"] - copy - held, "copy": copy, "user": own, "kernel": outside}
    parts["starved"], parts["queued"] = waiting_out, held
    rest = max(0.0, whole - sum(parts.values()))
    late = min(rest, max(0.0, starved - waiting_out - held))
    parts["queued"] += late
    parts.update(_asleep(thread, rest - late))
    return Parts(
        parts,
        exact=True,
        looks=int(some(thread.looks)),
        surplus=max(0.0, asked / _SLACK - whole),
        cpu_known=cpu_known,
    )


def _in_own_code(starved: float, user: float, system: float, asleep: float) -> float:
    """Return the part of the wait for a CPU that own code had: a thread that sleeps waits for one when it wakes up."""
    whole = user + system + asleep
    return starved * user / whole if whole > 0 else 0.0


def _asleep(thread: ThreadMeasure, rest: float) -> dict[str, float]:
    """Split the time outside of calls by what looks saw there."""
    names = ["fault", "network", "lock", "sleep", "metadata", "other"]
    if not thread.create_call_ns:
        names.append("create")  # opening what is there already is not timed
    seen = {name: some((thread.looks_in or {}).get(name)) for name in names}
    total = sum(seen.values())
    if not total:
        return {"rest": rest}
    return {"rest" if name == "other" else name: rest * count / total for name, count in seen.items() if count}


def _polled(thread: ThreadMeasure, whole: float) -> Parts:
    user, system, starved = _cpu(thread)
    exact = seconds(thread.on_cpu_ns)
    seen = {name: some((thread.looks_in or {}).get(name)) for name in _LOOKS}
    running = some((thread.looks_in or {}).get("running"))
    asleep_looks, looks = sum(seen.values()), sum(seen.values()) + running
    parts: dict[str, float] = {}
    cpu_known = user is not None or system is not None
    if cpu_known:
        asleep = max(0.0, whole - some(user) - some(system) - starved)
        waiting = _in_own_code(starved, some(user), some(system), asleep)
        parts.update(user=some(user), kernel=some(system), starved=waiting, queued=starved - waiting)
    elif exact is not None:
        parts.update(cpu=exact, queued=starved)
    elif looks:
        parts.update(cpu=whole * running / looks)
    used = sum(parts.values())
    if used > whole:
        parts = {name: value * whole / used for name, value in parts.items()}
    left = max(0.0, whole - sum(parts.values()))
    if asleep_looks:
        for name, count in seen.items():
            if count:
                key = "rest" if name == "other" else name
                parts[key] = parts.get(key, 0.0) + left * count / asleep_looks
    else:
        blocked = min(left, seconds(thread.block_delay_ns) or 0.0)
        parts.update(data=blocked, rest=left - blocked)
    surplus = max(0.0, used / _SLACK - whole) if number(used) is not None else 0.0
    known = bool(asleep_looks) or left < 0.2 * whole or bool(parts.get("data"))
    return Parts(parts, exact=False, looks=int(looks), surplus=surplus, cpu_known=cpu_known, calls_known=known)
