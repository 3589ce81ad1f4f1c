"""Everything needed to classify and describe an event, as one argument."""

from __future__ import annotations

from dataclasses import dataclass, field

from ckptprof.detect.events.deferred import DeferredEvents
from ckptprof.detect.events.past_events import PastEvents
from ckptprof.detect.transfers.transfers import Transfers
from ckptprof.detect.world.world import World


@dataclass(frozen=True)
class Knowledge:
    """What was observed, transferred and decided so far."""

    world: World
    transfers: Transfers
    past: PastEvents = field(default_factory=PastEvents)
    deferred: DeferredEvents = field(default_factory=DeferredEvents)
