"""The writing or reading process: a trainer or a tool; careful with its files, or writing logs and databases."""

from __future__ import annotations

from ckptprof.detect.events.event import Event
from ckptprof.detect.events.signal import Found
from ckptprof.detect.events.signals.series import is_row_of_data
from ckptprof.detect.tolerances import HEADER_BYTES
from ckptprof.frameworks.programs import GPU_RUNTIMES, NUMERIC_RUNTIMES, TRAINING_RUNTIMES

_BUSY = 0.4  # of a core, in its own code
_LIVED_NS = 3_000_000_000  # outside the writing; less is no evidence


def runtime(event: Event) -> Found | None:
    """Return the libraries that its processes have loaded."""
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
    """Return whether all of its processes ended before they were identified."""
    ended = event.world.ended
    return event.world.runtimes(event.processes) is None and all(one in ended for one in event.processes)


def computes(event: Event) -> bool:
    """Return whether a writer spends its time in its own code, not on its files: it makes what it writes."""
    if not event.writes or is_row_of_data(event):
        return False
    for process in event.processes:
        share = event.world.usage.own_code(process, event.start_ns)
        if share is not None and share[0] >= _LIVED_NS and share[1] >= _BUSY:
            return True
    return False


def is_tool(event: Event) -> bool:
    """Return whether a program that copies, packs, sends or fetches wrote or read it."""
    return any(map(event.world.jobs.is_mover, event.makers))


def is_service(event: Event) -> bool:
    """Return whether a program that installs, builds, serves, tests or logs wrote or read it."""
    jobs = event.world.jobs
    return any(jobs.is_tool(process) and not jobs.is_mover(process) for process in event.processes)


def renamed(event: Event) -> bool:
    """Return whether it had a temporary name first: no reader ever sees half of it."""
    return event.writes and any(part.earlier_path is not None for part in event.parts)


def appends(event: Event) -> bool:
    """Return whether most of it was written with O_APPEND, as logs are."""
    return event.writes and not event.mostly(lambda part: not part.append)


def random(event: Event) -> bool:
    """Return whether small operations do not follow each other, as in databases."""
    sums = [part.operations for part in event.parts if part.operations is not None]
    moved = sum(one.bytes for one in sums)
    operations = sum(one.number for one in sums)
    if not event.writes or not operations or moved / operations >= HEADER_BYTES:
        return False
    return sum(one.consecutive_bytes for one in sums) * 2 <= moved
