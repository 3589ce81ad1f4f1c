"""What was concluded of an event before its measures are taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ckptprof.detect.describe.stall import Stall
from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.knowledge import Knowledge
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.model import Writer


@dataclass(frozen=True)
class Draft:
    """A checkpoint in the making. Times are CLOCK_MONOTONIC."""

    candidate: Candidate
    known: Knowledge
    path: str
    writers: tuple[Writer, ...]
    stall: Stall
    durable_ns: int | None

    def ranks(self) -> Mapping[int, int | None]:
        """Return the ranks of its writers, by pid."""
        return {writer.pid: writer.rank for writer in self.writers}

    def role(self, process: ProcessKey) -> str | None:
        """Return the part of one of its writers in the job."""
        return next((writer.role for writer in self.writers if writer.pid == process[0]), None)
