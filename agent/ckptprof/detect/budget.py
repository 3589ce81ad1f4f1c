"""One budget in bytes over all that detection keeps: above it each kind of knowledge is cut, the oldest goes first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ckptprof.detect.events.knowledge import Knowledge

BUDGET_BYTES = 16_000_000  # a service of 40 MB, with what Python needs beside it, takes some 80 MB
_LEAST_SHARE = 1 / 8  # of its bound each kind keeps so much in any case: a thousand files


class Kept(NamedTuple):
    """One kind of retained data."""

    bytes_each: int  # with what it refers to and its places in mappings; measured, see tests/detect/test_budget.py
    number: Callable[[], int]
    cut: Callable[[float], object] | None = None  # to a share of its bound; None: it goes by its age alone


class Budget:
    """Sums retained data by numbers and measured sizes; events not yet decided are never cut, and may exceed it."""

    def __init__(self, kinds: Sequence[Kept], limit_bytes: int = BUDGET_BYTES) -> None:
        self._kinds = tuple(kinds)
        self._limit_bytes = limit_bytes
        self.forgotten_bytes = 0  # before their time, for want of room

    @property
    def kept_bytes(self) -> int:
        """About how many bytes are retained now."""
        return sum(kind.bytes_each * kind.number() for kind in self._kinds)

    def keep(self) -> None:
        """Shrink all kinds to the largest share of their bounds that fits: small ones lose nothing."""
        before = kept = self.kept_bytes
        share = 1.0
        while kept > self._limit_bytes and share > _LEAST_SHARE:
            share = max(_LEAST_SHARE, 0.75 * share)
            for kind in self._kinds:
                if kind.cut is not None:
                    kind.cut(share)
            kept = self.kept_bytes
        self.forgotten_bytes += before - kept


def kinds_of(known: Knowledge) -> list[Kept]:
    """Return the kinds of retained data, with sizes measured in everyday work at both levels."""
    world, transfers = known.world, known.transfers
    return [
        Kept(2200, transfers.traced.__len__, transfers.traced.cut),
        Kept(750, transfers.traced.lives.__len__, transfers.traced.lives.cut),
        Kept(600, transfers.facts.__len__, transfers.facts.cut),
        Kept(1200, transfers.recent.__len__, transfers.recent.cut),
        Kept(520, transfers.openings.__len__, transfers.openings.cut),
        Kept(400, transfers.removals.__len__, transfers.removals.cut),
        Kept(320, transfers.writeback.__len__, transfers.writeback.cut),
        Kept(300, known.past.__len__, known.past.cut),
        Kept(250, transfers.saved.__len__, transfers.saved.cut),
        Kept(1200, world.jobs.__len__),
        Kept(1200, world.histories.__len__),
        Kept(300, lambda: world.intervals),
        Kept(1, lambda: world.usage.kept_bytes, world.usage.cut),
        Kept(1, lambda: world.devices.clients.kept_bytes, world.devices.clients.cut),
        Kept(1, lambda: world.devices.connections.kept_bytes, world.devices.connections.cut),
        Kept(1, lambda: transfers.sent.moved.kept_bytes, transfers.sent.moved.cut),
        Kept(900, lambda: transfers.sent.counted),
        Kept(220, lambda: transfers.sent.points, transfers.sent.cut),
        Kept(28, lambda: transfers.polled.looks),
        Kept(200, world.threads.__len__),
        Kept(20, world.calls.__len__),
    ]
