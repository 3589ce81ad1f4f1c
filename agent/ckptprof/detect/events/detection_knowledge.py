"""Everything needed to classify and describe an event, as one argument."""

from __future__ import annotations

from dataclasses import dataclass, field

from ckptprof.detect.events.deferred import DeferredEvents
from ckptprof.detect.events.event_history import EventHistory
from ckptprof.detect.transfers.transfer_tracker import TransferTracker
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.spans import Span
from ckptprof.detect.world.world import World


@dataclass(frozen=True)
class Knowledge:
    """What was observed, transferred and decided so far."""

    world: World
    transfers: TransferTracker
    history: EventHistory = field(default_factory=EventHistory)
    deferred: DeferredEvents = field(default_factory=DeferredEvents)

    def bytes_outside_files(self, process: ProcessKey, span: Span, *, writes: bool) -> int:
        """Bytes that a process transferred by pipes or sockets in a time, by its counters and its known files."""
        history = self.world.histories[process]
        transferred = history.wrote_bytes(*span) if writes else history.returned_bytes(*span)
        in_files = self.transfers.recent.transfers_between(process, *span, writes=writes)
        return transferred - sum(one.size_in_use for one in in_files)
