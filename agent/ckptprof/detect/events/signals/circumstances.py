"""Conditions of combinations in the decision table: they weigh nothing themselves, and are not shown as evidence."""

from __future__ import annotations

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.copies import counterparts
from ckptprof.detect.events.knowledge import Knowledge
from ckptprof.detect.events.traits import candidate_bytes, framework_of, is_weak


def writes(candidate: Candidate, _: Knowledge) -> bool:
    """Return whether files were written."""
    return candidate.writes


def reads(candidate: Candidate, _: Knowledge) -> bool:
    """Return whether files were read."""
    return not candidate.writes


def trains(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether one of its processes has a library for training loaded, holds a GPU, or carries a rank."""
    return known.world.trains(candidate.processes)


def stranger(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether its processes were described, and none has any library of machine learning loaded."""
    return known.world.is_alien(candidate.processes)


def weak_name(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether data sets bear such names, too."""
    return is_weak(framework_of(candidate, known))


def mapped(candidate: Candidate, _: Knowledge) -> bool:
    """Return whether at least half of it was read through mappings."""
    size = sum(part.bytes for part in candidate.parts if part.uses_mapping)
    return size * 2 >= candidate_bytes(candidate)


def of_a_save(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether a file of the other side of the copy was seen being saved."""
    return any(known.transfers.saved.contains(move.path) for move in counterparts(candidate, known))
