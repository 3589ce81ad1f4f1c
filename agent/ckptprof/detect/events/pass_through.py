"""Whether files only passed through a process: by the order in which they were moved, and what of them it kept."""

from __future__ import annotations

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.knowledge import Knowledge
from ckptprof.detect.transfers import pieces
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.process_counters import Interval
from ckptprof.frameworks.runtimes import GPU_RUNTIMES

_SEEN = 0.7  # of the bytes must have been counted while memory was looked at
_MAX_PROCESSES = 64
_ENDS_NS = 2_000_000_000  # a library of machine learning takes a second to unload where others compute, too


def is_straight(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether every big file was read from its begin to its end, in pieces of one size."""
    if candidate.writes or not pieces.big_of(candidate.parts):
        return False
    gpu = bool((known.world.runtimes(candidate.processes) or frozenset()) & GPU_RUNTIMES)
    ranked = known.world.jobs.rank(candidate.processes[0]) is not None
    return pieces.is_straight(
        candidate.parts,
        None if ranked else _alone(candidate, known),  # a rank may put arrays of one size into memory that is there
        pooled=not gpu,
        over=ends_at_once(candidate, known),
    )


def ends_at_once(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether all its processes were over as soon as they had moved it, or before anybody looked at them."""
    return all(_ends(process, candidate, known) for process in candidate.processes)


def is_poured(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether every big file was written from its begin, in pieces of one size, page upon page.

    So is written what comes in pieces from elsewhere. The arrays of a model, and what stands before them, differ.
    """
    if not candidate.writes or not pieces.big_of(candidate.parts):
        return False
    return pieces.is_poured(candidate.parts, _alone(candidate, known))


def kept_share(candidate: Candidate, known: Knowledge) -> float | None:
    """Return by how much of what they read the memory of its processes grew; None: not seen."""
    total = sum(part.bytes for part in candidate.parts)
    if not total or any(part.is_mapped for part in candidate.parts):
        return None
    histories = (known.world.histories.get(process) for process in candidate.processes[:_MAX_PROCESSES])
    kept, seen = pieces.kept_and_seen(candidate.parts, (one for one in histories if one is not None))
    return kept / total if seen >= _SEEN * total else None


def _alone(candidate: Candidate, known: Knowledge) -> list[Interval] | None:
    """Return what its process moved meanwhile; None: it has several, of which none tells for all."""
    history = known.world.histories.get(candidate.processes[0])
    if len(candidate.processes) > 1 or history is None:
        return None
    return history.between(candidate.start_ns, candidate.end_ns)


def _ends(process: ProcessKey, candidate: Candidate, known: Knowledge) -> bool:
    if known.world.jobs.info(process) is None:
        return True
    ended_ns = known.world.ended.get(process)
    return ended_ns is not None and ended_ns - candidate.end_ns < _ENDS_NS
