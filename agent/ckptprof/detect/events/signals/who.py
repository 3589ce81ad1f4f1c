"""Who wrote or read it: a process that trains, one that computes, a tool."""

from __future__ import annotations

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.knowledge import Knowledge
from ckptprof.detect.events.signal import Found
from ckptprof.detect.events.signals.series import is_row_of_data
from ckptprof.frameworks.runtimes import GPU_RUNTIMES, NUMERIC_RUNTIMES, TRAINING_RUNTIMES

_BUSY = 0.4  # of a core, in its own code
_LIVED_NS = 3_000_000_000  # outside the writing: less says nothing


def runtime(candidate: Candidate, known: Knowledge) -> Found | None:
    """Return which libraries its processes have loaded."""
    loaded = known.world.runtimes(candidate.processes)
    if loaded is None:
        return None
    verb = "written" if candidate.writes else "read"
    if loaded & TRAINING_RUNTIMES:
        names = ", ".join(sorted(loaded & TRAINING_RUNTIMES))
        return Found(f"{verb} by a process with {names} loaded", "runtime-training")
    if loaded & GPU_RUNTIMES:
        return Found(f"{verb} by a process that uses a GPU", "runtime-gpu")
    if loaded & NUMERIC_RUNTIMES:
        return Found(f"{verb} by a process with numpy loaded", "runtime-numeric")
    return Found(f"{verb} by a process without any library of machine learning", "runtime-none")


def has_rank(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether a rank is in its environment: a launcher of training jobs started it."""
    return any(known.world.jobs.rank(process) is not None for process in candidate.processes)


def computes(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether a writer spends its time in its own code, not at its files: it makes what it writes."""
    if not candidate.writes or is_row_of_data(candidate, known):
        return False
    for process in candidate.processes:
        history = known.world.histories.get(process)
        share = history.own_code(candidate.start_ns) if history is not None else None
        if share is not None and share[0] >= _LIVED_NS and share[1] >= _BUSY:
            return True
    return False


def is_tool(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether a program that copies, packs, sends or fetches moved it."""
    return any(known.world.jobs.is_mover(process) for process in candidate.processes)


def is_service(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether a program that installs, builds, serves, tests or logs moved it: it is its own."""
    jobs = known.world.jobs
    return any(jobs.is_tool(process) and not jobs.is_mover(process) for process in candidate.processes)
