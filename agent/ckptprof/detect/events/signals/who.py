"""Who wrote or read it: a process that trains, one that computes, a tool."""

from __future__ import annotations

from ckptprof.detect.events.event import Event
from ckptprof.detect.events.signal import Found
from ckptprof.detect.events.signals.series import is_row_of_data
from ckptprof.frameworks.programs import GPU_RUNTIMES, NUMERIC_RUNTIMES, TRAINING_RUNTIMES

_BUSY = 0.4  # of a core, in its own code
_LIVED_NS = 3_000_000_000  # outside the writing: less says nothing


def runtime(event: Event) -> Found | None:
    """Return which libraries its processes have loaded."""
    loaded = event.world.runtimes(event.makers)
    if loaded is None:
        return None
    verb = "written" if event.writes else "read"
    if loaded & TRAINING_RUNTIMES:
        names = ", ".join(sorted(loaded & TRAINING_RUNTIMES))
        return Found(f"{verb} by a process with {names} loaded", "runtime-training")
    if loaded & GPU_RUNTIMES:
        return Found(f"{verb} by a process that uses a GPU", "runtime-gpu")
    if loaded & NUMERIC_RUNTIMES:
        return Found(f"{verb} by a process with numpy loaded", "runtime-numeric")
    return Found(f"{verb} by a process without any library of machine learning", "runtime-none")


def is_unknown(event: Event) -> bool:
    """Return whether all of its processes were over before anybody saw what they are."""
    ended = event.world.ended
    return event.world.runtimes(event.processes) is None and all(one in ended for one in event.processes)


def computes(event: Event) -> bool:
    """Return whether a writer spends its time in its own code, not at its files: it makes what it writes."""
    if not event.writes or is_row_of_data(event):
        return False
    for process in event.processes:
        share = event.world.usage.own_code(process, event.start_ns)
        if share is not None and share[0] >= _LIVED_NS and share[1] >= _BUSY:
            return True
    return False


def is_tool(event: Event) -> bool:
    """Return whether a program that copies, packs, sends or fetches moved it."""
    return any(map(event.world.jobs.is_mover, event.makers))


def is_service(event: Event) -> bool:
    """Return whether a program that installs, builds, serves, tests or logs moved it: it is its own."""
    jobs = event.world.jobs
    return any(jobs.is_tool(process) and not jobs.is_mover(process) for process in event.processes)
