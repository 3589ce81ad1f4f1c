"""One budget in bytes for all retained data of detection: above it every kind is shrunk, oldest first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ckptprof.detect.events.detection_knowledge import Knowledge

BUDGET_BYTES = 8_000_000  # counted; the arenas of Python grow by twice as much
_MIN_SHARE = 1 / 8  # of its bound that each kind retains in any case: a thousand files


class RetainedKind(NamedTuple):
    """One kind of retained data."""

    bytes_each: int  # including referenced objects and entries of mappings; measured, see tests/detect/test_budget.py
    number: Callable[[], int]
    shrink: Callable[[float], object] | None = None  # to a share of its bound; None: dropped by age only


class Budget:
    """Sums retained data by numbers and measured sizes; unclassified events are never dropped, and may exceed it."""

    def __init__(self, kinds: Sequence[RetainedKind], limit_bytes: int = BUDGET_BYTES) -> None:
        self._kinds = tuple(kinds)
        self._files = [kind for kind in kinds if kind.shrink is not None and kind.bytes_each > 1]  # quickly counted
        self._after_shrink_bytes = 0  # of files
        self._limit_bytes = limit_bytes
        self.forgotten_bytes = 0  # dropped early, for this budget

    @property
    def retained_bytes(self) -> int:
        """About how many bytes are retained now."""
        return sum(kind.bytes_each * kind.number() for kind in self._kinds)

    def shrink_after_burst(self) -> None:
        """Shrink once more than fits is retained of files alone, and a quarter more than the last time left.

        What waits cannot be cut: however much that is, it is tried seldom.
        """
        if self._files_bytes > max(self._limit_bytes, 1.25 * self._after_shrink_bytes):
            self.shrink_to_limit()

    @property
    def _files_bytes(self) -> int:
        return sum(kind.bytes_each * kind.number() for kind in self._files)

    def shrink_to_limit(self) -> None:
        """Shrink all kinds to the largest share of their bounds that fits: small ones lose nothing."""
        before = retained_bytes = self.retained_bytes
        share = 1.0
        while retained_bytes > self._limit_bytes and share > _MIN_SHARE:
            share = max(_MIN_SHARE, 0.75 * share)
            for kind in self._kinds:
                if kind.shrink is not None:
                    kind.shrink(share)
            retained_bytes = self.retained_bytes
        self.forgotten_bytes += before - retained_bytes
        self._after_shrink_bytes = self._files_bytes


def retained_kinds(known: Knowledge) -> list[RetainedKind]:
    """Return the kinds of retained data, with sizes measured in everyday work at both levels."""
    world, transfers = known.world, known.transfers
    recent, sent = transfers.recent, transfers.sent
    return [
        RetainedKind(1600, transfers.traced.__len__, transfers.traced.shrink),
        RetainedKind(300, lambda: len(transfers.waiting)),  # in addition to what the others of their kind take
        RetainedKind(750, transfers.traced.file_events.__len__, transfers.traced.file_events.shrink),
        RetainedKind(600, transfers.facts.__len__, transfers.facts.shrink),
        RetainedKind(1200, lambda: max(len(recent), len(transfers.waiting) - len(transfers.traced)), recent.shrink),
        RetainedKind(520, transfers.openings.__len__, transfers.openings.shrink),
        RetainedKind(400, transfers.removals.__len__, transfers.removals.shrink),
        RetainedKind(320, transfers.writeback.__len__, transfers.writeback.shrink),
        RetainedKind(300, known.history.__len__, known.history.shrink),
        RetainedKind(250, transfers.saved.__len__, transfers.saved.shrink),
        RetainedKind(1200, world.jobs.__len__),
        RetainedKind(1200, world.histories.__len__),
        RetainedKind(130, lambda: world.interval_count),
        RetainedKind(1, lambda: world.usage.retained_bytes, world.usage.shrink),
        RetainedKind(1, lambda: world.devices.clients.retained_bytes, world.devices.clients.shrink),
        RetainedKind(1, lambda: world.devices.connections.retained_bytes, world.devices.connections.shrink),
        RetainedKind(1, lambda: sent.transferred_bytes.retained_bytes, sent.transferred_bytes.shrink),
        RetainedKind(900, lambda: sent.counted_connections),
        RetainedKind(220, lambda: sent.point_count, sent.shrink),
        RetainedKind(28, lambda: transfers.polled.sample_count),
        RetainedKind(200, world.threads.__len__),
        RetainedKind(20, world.calls.__len__),
    ]
