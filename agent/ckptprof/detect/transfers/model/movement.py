"""Movement: bytes that one thread transferred of one file between two samples: when, how many, at which offsets."""

from __future__ import annotations

from typing import NamedTuple

from ckptprof.detect.tolerances import WHOLE_SHARE
from ckptprof.detect.transfers.model.operations import unevented_bytes_of
from ckptprof.model import Succession
from ckptprof_collectors.samples import FileActivity


class Movement(NamedTuple):
    """Bytes transferred in one stretch of time; times are CLOCK_MONOTONIC."""

    start_ns: int
    end_ns: int
    bytes: int
    low_offset: int | None = None  # None: not observed
    high_offset: int | None = None
    order: Succession | None = None
    tid: int | None = None  # None: of several threads


def measure_movement(earlier: FileActivity | None, activity: FileActivity, start_ns: int) -> Movement:
    """Return the movement of a session since an earlier sample of it, or since its start."""
    transferred = activity.bytes - (earlier.bytes if earlier else 0)
    end_ns = max(activity.last_ns, start_ns + 1)
    if unevented_bytes_of(activity):  # of a mapping, counted at its end: its offsets are unknown
        return Movement(start_ns, end_ns, transferred, tid=activity.tid)
    low, high, forward = _range_so_far(activity) if earlier is None else _range_since(earlier, activity, transferred)
    order = Succession.BACK
    if forward:
        order = Succession.NEXT if _fills(transferred, high - low) else Succession.ON
    return Movement(start_ns, end_ns, transferred, low, high, order, activity.tid)


def _range_so_far(first: FileActivity) -> tuple[int, int, bool]:
    """Return (low, high, "it goes forward") of a session so far.

    A reader of a file's end before the rest, or of a header in between, goes forward with nearly all bytes; one that
    reads the same bytes twice does not.
    """
    low_offset, high_offset = first.low_offset, first.high_offset
    in_order = first.sequential_bytes >= WHOLE_SHARE * first.bytes
    is_without_repeats = WHOLE_SHARE * first.bytes <= high_offset - low_offset
    return (
        low_offset,
        high_offset,
        in_order
        and is_without_repeats
        and (first.end_offset == high_offset or _fills(first.bytes, high_offset - low_offset)),
    )


def _range_since(earlier: FileActivity, later: FileActivity, transferred: int) -> tuple[int, int, bool]:
    """Return the same for the time since an earlier sample.

    A header rewritten between two parts is no other order: nearly all bytes went to new offsets.
    """
    operations = later.operations - earlier.operations
    if later.sequential_operations - earlier.sequential_operations >= operations:
        return earlier.end_offset, later.end_offset, True
    in_order = later.sequential_bytes - earlier.sequential_bytes >= WHOLE_SHARE * transferred
    if in_order and later.high_offset - earlier.high_offset >= WHOLE_SHARE * transferred:
        return earlier.high_offset, later.high_offset, True
    return later.low_offset, later.high_offset, False


def _fills(transferred: int, stretch: int) -> bool:
    return transferred >= WHOLE_SHARE * stretch


def merge_movements(one: Movement, other: Movement) -> Movement:
    """Merge two movements of a file into one; the order of several threads is not known."""
    first, second = sorted((one, other), key=lambda each: each.start_ns)
    times = first.start_ns, max(first.end_ns, second.end_ns), first.bytes + second.bytes
    tid = first.tid if first.tid == second.tid else None
    if first.low_offset is None or second.low_offset is None or first.high_offset is None or second.high_offset is None:
        return Movement(*times, tid=tid)
    low, high = min(first.low_offset, second.low_offset), max(first.high_offset, second.high_offset)
    return Movement(*times, low, high, _merged_order(first, second, high - low), tid)


def _merged_order(first: Movement, second: Movement, stretch: int) -> Succession | None:
    """Return the order of two movements of one thread."""
    if first.tid is None or first.tid != second.tid or first.order is None or second.order is None:
        return None
    has_back = Succession.BACK in (first.order, second.order)
    if has_back or (second.low_offset or 0) < (first.high_offset or 0):
        return Succession.BACK
    return Succession.NEXT if _fills(first.bytes + second.bytes, stretch) else Succession.ON
