"""Everything needed to classify and describe an event, as one argument."""

from __future__ import annotations

from dataclasses import dataclass, field

from ckptprof.detect.events.deferred import DeferredEvents
from ckptprof.detect.events.event_history import EventHistory
from ckptprof.detect.transfers.transfer_tracker import TransferTracker
from ckptprof.detect.world.world import World


@dataclass(frozen=True)
class Knowledge:
    """What was observed, transferred and decided so far."""

    world: World
    transfers: TransferTracker
    history: EventHistory = field(default_factory=EventHistory)
    deferred: DeferredEvents = field(default_factory=DeferredEvents)
