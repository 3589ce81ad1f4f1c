"""What the measures of a checkpoint are taken from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ckptprof.detect.describe.revisions import Revisions
from ckptprof.detect.describe.stall import Stall
from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.context import Context
from ckptprof.detect.world.clock import Clock
from ckptprof.detect.world.host_counters import HostCounters
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.trace_health import TraceHealthHistory
from ckptprof.model import Writer


@dataclass(frozen=True)
class Sight:
    """A candidate, what was concluded of it so far, and the books."""

    candidate: Candidate
    path: str
    writers: tuple[Writer, ...]
    hold: Stall
    durable_ns: int | None  # CLOCK_MONOTONIC
    around: Context
    books: HostCounters
    clock: Clock
    health: TraceHealthHistory
    aftermath: Revisions
    cores: int | None = None

    def ranks(self) -> Mapping[int, int | None]:
        """Return the ranks of its writers, by pid."""
        return {writer.pid: writer.rank for writer in self.writers}

    def role(self, process: ProcessKey) -> str | None:
        """Return the part of one of its writers in the job."""
        return next((writer.role for writer in self.writers if writer.pid == process[0]), None)
