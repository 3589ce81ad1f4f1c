"""What was concluded about an event before it is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ckptprof.detect.describe.stall import Stall
from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.detection_knowledge import Knowledge
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.world import World
from ckptprof.model import Writer


@dataclass(frozen=True)
class Draft:
    """A checkpoint in the making. Times are CLOCK_MONOTONIC."""

    candidate: Candidate
    known: Knowledge
    path: str
    writers: Mapping[ProcessKey, Writer]  # most bytes first
    stall: Stall
    durable_ns: int | None
    engine: str | None = None  # of its pattern

    @property
    def world(self) -> World:
        """Everything observed of the host."""
        return self.known.world
