"""Write amplification: what was written beyond the checkpoint itself, and why."""

from __future__ import annotations

from dataclasses import dataclass

from ckptprof.detect.candidates import Candidate
from ckptprof.model import Overhead


@dataclass(frozen=True)
class Amplification:
    """What a save wrote in all, what of it is the checkpoint, and the reasons for the rest."""

    written_bytes: int | None = None
    unique_bytes: int | None = None
    overheads: tuple[Overhead, ...] = ()


def amplification_of(candidate: Candidate) -> Amplification:
    """Return the amplification of a save; of a restore nothing is known here."""
    if not candidate.writes:
        return Amplification()
    moved = sum(part.bytes for part in candidate.parts)
    return Amplification(moved, moved)
