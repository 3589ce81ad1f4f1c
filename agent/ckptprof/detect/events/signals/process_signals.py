"""The writing or reading process: a trainer or a tool; careful with its files, or writing logs and databases."""

from __future__ import annotations

from ckptprof.detect.events.event_context import EventContext
from ckptprof.detect.events.signal_values import SignalMatch
from ckptprof.detect.events.signals import recurrence
from ckptprof.detect.tolerances import FEW, HEADER_BYTES, is_same_state_size
from ckptprof.frameworks.program_names import GPU_RUNTIMES, NUMERIC_RUNTIMES, TRAINING_RUNTIMES

_MIN_BUSY_SHARE = 0.4  # of a core, in its own code
_MIN_BUSY_SHARE_ALONE = 0.15  # without a library that waits for a GPU: on a crowded host it gets no more
_MIN_LIFE_NS = 3_000_000_000  # outside the writing; less is no evidence


def match_runtime(event: EventContext) -> SignalMatch | None:
    """Return the libraries that its processes have loaded."""
    loaded = event.world.runtimes(event.producers)
    if loaded is None:
        return None
    verb = "written" if event.writes else "read"
    if loaded & TRAINING_RUNTIMES:
        names = ", ".join(sorted(loaded & TRAINING_RUNTIMES))
        return SignalMatch(f"{verb} by a process with {names} loaded", "runtime-training")
    if loaded & GPU_RUNTIMES:
        return SignalMatch(f"{verb} by a process that uses a GPU", "runtime-gpu")
    if loaded & NUMERIC_RUNTIMES:
        return SignalMatch(f"{verb} by a process with numpy loaded", "runtime-numeric")
    if is_steady(event) and (event.framework == "pickle" or 0 < event.memory_bytes < 2 * event.bytes):
        how = "written by a process that computes, as much each time, most of its memory or objects of its own"
        return SignalMatch(how, "runtime-own")
    return SignalMatch(f"{verb} by a process without any library of machine learning", "runtime-none")


def is_steady(event: EventContext) -> bool:
    """One size at even periods, by a process that computes: films and pictures differ in size."""
    is_one_size = all(is_same_state_size(one.bytes, event.bytes) for one in event.series[-FEW:])
    return is_one_size and recurrence.period_text(event) is not None and computes(event)


def is_process_unknown(event: EventContext) -> bool:
    """End of all its processes before they were described."""
    ended = event.world.ended
    return event.world.runtimes(event.producers) is None and all(one in ended for one in event.producers)


def computes(event: EventContext) -> bool:
    """CPU time of a writer in its own code, not in file I/O: it computes what it writes."""
    if not event.writes or recurrence.is_row_of_data(event):
        return False
    least_share = _MIN_BUSY_SHARE_ALONE if event.world.has_no_ml_library(event.producers) else _MIN_BUSY_SHARE
    for process in map(event.world.jobs.rank_process, event.producers):
        share = event.world.usage.user_time(process, event.start_ns)
        if share is not None and share[0] >= _MIN_LIFE_NS and share[1] >= least_share:
            return True
    return False


def is_tool(event: EventContext) -> bool:
    """Written or read by a program that copies, packs, sends or fetches."""
    return any(map(event.world.jobs.is_mover, event.producers))


def is_service(event: EventContext) -> bool:
    """Written or read by a program that installs, builds, serves, tests or logs."""
    jobs = event.world.jobs
    return any(jobs.is_tool(process) and not jobs.is_mover(process) for process in event.processes)


def is_renamed(event: EventContext) -> bool:
    """Temporary name at first: no reader ever gets an incomplete file."""
    return event.writes and any(part.earlier_path is not None for part in event.parts)


def is_appended(event: EventContext) -> bool:
    """Mostly written with O_APPEND, as logs are."""
    return event.writes and not event.holds_for_most_bytes(lambda part: not part.append)


def is_random_access(event: EventContext) -> bool:
    """Small operations at scattered offsets, as in databases."""
    sums = [part.operations for part in event.parts if part.operations is not None]
    transferred = sum(one.bytes for one in sums)
    operations = sum(one.number for one in sums)
    if not event.writes or not operations or transferred / operations >= HEADER_BYTES:
        return False
    return sum(one.consecutive_bytes for one in sums) * 2 <= transferred
