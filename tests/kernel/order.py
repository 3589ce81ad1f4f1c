"""The truth to compare with: what a list of operations, as a program logged them, amounts to (design section 5)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

LARGE_BYTES = 1 << 20


@dataclass(frozen=True)
class Order:
    """How operations of one thread on one file in one direction follow each other."""

    operations: int = 0
    bytes: int = 0
    consecutive_operations: int = 0
    consecutive_bytes: int = 0
    sequential_operations: int = 0
    sequential_bytes: int = 0
    large_bytes: int = 0

    def __add__(self, other: Order) -> Order:
        """Add those of another thread or another session."""
        return Order(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))


def order_of(operations: Iterable[tuple[int, int]]) -> Order:
    """Return what these (offset, length) amount to, in the order in which they were asked for."""
    count = total = consecutive = consecutive_bytes = sequential = sequential_bytes = large = 0
    end: int | None = None
    run = 0
    for offset, length in operations:
        follows = end is None or offset == end
        if not follows:
            large += run if run >= LARGE_BYTES else 0
            run = 0
        run += length
        count += 1
        total += length
        consecutive += follows
        consecutive_bytes += length if follows else 0
        ahead = end is None or offset >= end
        sequential += ahead
        sequential_bytes += length if ahead else 0
        end = offset + length
    large += run if run >= LARGE_BYTES else 0
    return Order(count, total, consecutive, consecutive_bytes, sequential, sequential_bytes, large)
