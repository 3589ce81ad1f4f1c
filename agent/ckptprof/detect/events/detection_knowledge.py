"""Everything needed to classify and describe an event, as one argument."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from ckptprof.detect.events.deferred import DeferredEvents
from ckptprof.detect.events.event_history import EventHistory
from ckptprof.detect.transfers.transfer_tracker import TransferTracker
from ckptprof.detect.world.keys import FileKey, ProcessKey
from ckptprof.detect.world.spans import Span
from ckptprof.detect.world.world import World


@dataclass(frozen=True)
class Knowledge:
    """What was observed, transferred and decided so far."""

    world: World
    transfers: TransferTracker
    history: EventHistory = field(default_factory=EventHistory)
    deferred: DeferredEvents = field(default_factory=DeferredEvents)

    def bytes_outside_files(
        self, process: ProcessKey, span: Span, *, writes: bool, but: Collection[FileKey] = ()
    ) -> int:
        """Bytes that a process transferred by pipes or sockets in a time, by its counters and its known files.

        Where a child exited, the counters may be those of its own children, too: only those of its main thread count.
        `but`: files that another process transfers, for which it may have opened them.
        """
        history = self.world.histories[process]
        alone = (one for one in history.between(*span) if not history.had_child_exit(one.start_ns + 1, one.end_ns))
        counted = sum(one.new_written_bytes if writes else one.returned_bytes for one in alone)
        by_main = self.world.trainers.transferred_bytes(process, *span) or (0, 0)
        in_files = self.transfers.recent.transfers_between(process, *span, writes=writes)
        own = (one.size_in_use for one in in_files if one.file not in but)
        return max(counted, by_main[0 if writes else 1]) - sum(own)
