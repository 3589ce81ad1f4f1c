"""What the measures of a checkpoint are taken from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ckptprof.detect.aftermath import Aftermath
from ckptprof.detect.blind import HealthBook
from ckptprof.detect.candidates import Candidate
from ckptprof.detect.edges import Clock
from ckptprof.detect.holds import Hold
from ckptprof.detect.measurebook import MeasureBook
from ckptprof.detect.streams import ProcessKey
from ckptprof.detect.surroundings import Surroundings
from ckptprof.model import Writer


@dataclass(frozen=True)
class Sight:
    """A candidate, what was concluded of it so far, and the books."""

    candidate: Candidate
    path: str
    writers: tuple[Writer, ...]
    hold: Hold
    durable_ns: int | None  # CLOCK_MONOTONIC
    around: Surroundings
    books: MeasureBook
    clock: Clock
    health: HealthBook
    aftermath: Aftermath
    cores: int | None = None

    def ranks(self) -> Mapping[int, int | None]:
        """Return the ranks of its writers, by pid."""
        return {writer.pid: writer.rank for writer in self.writers}

    def role(self, process: ProcessKey) -> str | None:
        """Return the part of one of its writers in the job."""
        return next((writer.role for writer in self.writers if writer.pid == process[0]), None)
