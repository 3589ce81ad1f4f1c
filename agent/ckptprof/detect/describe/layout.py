"""How the bytes of an event were laid out, and the class of that: by bytes, not operations (design section 5)."""

from __future__ import annotations

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.tolerances import HEADER_BYTES, WHOLE_SHARE
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.order import Order, called_median_bytes, layout_of, share_of
from ckptprof.detect.world.process_counters import Histories
from ckptprof.model import Pattern, PatternClass

SEEN_SHARE = 0.5  # of the bytes must have shown their order before a class is named
_RANDOM_SEQUENTIAL = 0.75  # of random operations every other one goes ahead
_RANDOM_CONSECUTIVE = 0.25


def pattern_of(candidate: Candidate, histories: Histories) -> Pattern:
    """Return the pattern of a candidate; None wherever it could not be seen."""
    total = candidate.bytes
    order, sizes = layout_of(candidate.parts, histories)
    known = order.known
    mapped = sum(part.bytes for part in candidate.parts if part.is_mapped)
    direct = sum(part.direct_bytes for part in candidate.parts)
    is_seen = known >= SEEN_SHARE * total  # the rest: mappings, mostly
    return Pattern(
        class_=_class_of(order, sizes.called_median_bytes) if is_seen else None,
        sequential_share_bytes=share_of(known - order.back, known),
        consecutive_share_bytes=share_of(order.consecutive + order.inferred, known),
        large_share_bytes=share_of(order.large, known),
        sequential_share_operations=sizes.sequential_share,
        consecutive_share_operations=sizes.consecutive_share,
        order_seen_share_bytes=share_of(order.seen, total),
        operations=sizes.number,
        mean_operation_bytes=sizes.mean_bytes,
        median_operation_bytes=sizes.median_bytes,
        size_histogram=None if sizes.histogram is None else {str(k): list(v) for k, v in sizes.histogram.items()},
        buffered_share_bytes=share_of(total - direct - mapped, total),
        direct_share_bytes=share_of(direct, total),
        mapped_share_bytes=share_of(mapped, total),
    )


def class_of(transfer: Transfer) -> PatternClass | None:
    """Return the class of a single transfer; None if its operations were not counted."""
    sums = transfer.operations
    if sums is None:
        return None
    order = Order()
    order.count(sums)
    return _class_of(order, called_median_bytes([transfer]))


def _class_of(order: Order, called_median_bytes: float | None) -> PatternClass | None:
    if order.known <= 0:
        return None
    consecutive = (order.consecutive + order.inferred) / order.known
    sequential = (order.known - order.back) / order.known
    if sequential >= WHOLE_SHARE:
        dense = order.gap is not None and order.known >= WHOLE_SHARE * (order.known + order.gap)
        if consecutive < WHOLE_SHARE and not dense:
            return PatternClass.STRIDED
        small = called_median_bytes is not None and called_median_bytes < HEADER_BYTES
        large = order.large * 2 >= order.known
        return PatternClass.SEQUENTIAL_LARGE if large and not small else PatternClass.SEQUENTIAL_SMALL
    if sequential < _RANDOM_SEQUENTIAL and consecutive < _RANDOM_CONSECUTIVE:
        return PatternClass.RANDOM
    return PatternClass.MIXED
