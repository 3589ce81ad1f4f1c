"""Who wrote or read it: a process that trains, one that computes, a tool."""

from __future__ import annotations

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.knowledge import Knowledge
from ckptprof.detect.events.signals.series import is_row_of_data
from ckptprof.detect.events.signals.weights import WEIGHTS
from ckptprof.frameworks.runtimes import GPU_RUNTIMES, NUMERIC_RUNTIMES, TRAINING_RUNTIMES
from ckptprof.model import Evidence

_BUSY = 0.4  # of a core, in its own code
_LIVED_NS = 3_000_000_000  # outside the writing: less says nothing


def runtime(candidate: Candidate, known: Knowledge) -> Evidence | None:
    """Weigh the libraries that its processes have loaded."""
    loaded = known.world.runtimes(candidate.processes)
    if loaded is None:
        return None
    verb = "written" if candidate.writes else "read"
    if loaded & TRAINING_RUNTIMES:
        names = ", ".join(sorted(loaded & TRAINING_RUNTIMES))
        kind = "runtime-training-gpu" if loaded & GPU_RUNTIMES else "runtime-training"
        return Evidence(name="runtime", weight=WEIGHTS[kind], text=f"{verb} by a process with {names} loaded")
    if loaded & GPU_RUNTIMES:
        return Evidence(name="runtime", weight=WEIGHTS["runtime-gpu"], text=f"{verb} by a process that uses a GPU")
    if loaded & NUMERIC_RUNTIMES:
        return Evidence(
            name="runtime", weight=WEIGHTS["runtime-numeric"], text=f"{verb} by a process with numpy loaded"
        )
    return Evidence(
        name="runtime",
        weight=WEIGHTS["runtime-none"],
        text=f"{verb} by a process without any library of machine learning",
    )


def rank(candidate: Candidate, known: Knowledge) -> Evidence | None:
    """Weigh a rank in the environment: a launcher of training jobs started it."""
    if any(known.world.jobs.rank(process) is not None for process in candidate.processes):
        return Evidence(name="rank", weight=WEIGHTS["rank"], text="its process carries a rank")
    return None


def computes(candidate: Candidate, known: Knowledge) -> Evidence | None:
    """Weigh a writer that spends its time in its own code, not at its files: it makes what it writes."""
    if not candidate.writes or is_row_of_data(candidate, known):
        return None
    for process in candidate.processes:
        history = known.world.histories.get(process)
        share = history.own_code(candidate.start_ns) if history is not None else None
        if share is not None and share[0] >= _LIVED_NS and share[1] >= _BUSY:
            return Evidence(name="computes", weight=WEIGHTS["computes"], text="its process computes between its writes")
    return None


def tool(candidate: Candidate, known: Knowledge) -> Evidence | None:
    """Weigh a program that copies, packs, sends or fetches."""
    if not any(known.world.jobs.is_mover(process) for process in candidate.processes):
        return None
    return Evidence(name="tool", weight=WEIGHTS["tool"], text="its process is a tool that copies, packs or fetches")


def service(candidate: Candidate, known: Knowledge) -> Evidence | None:
    """Weigh a program that installs, builds, serves, tests or logs: what it moves is its own."""
    jobs = known.world.jobs
    if not any(jobs.is_tool(process) and not jobs.is_mover(process) for process in candidate.processes):
        return None
    return Evidence(
        name="service", weight=WEIGHTS["service"], text="its process is a tool that installs, builds, serves or logs"
    )
