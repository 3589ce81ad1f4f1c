"""How the bytes of an event were laid out, and the class of that: by bytes, not operations (design section 5).

Also whether GPUDirect Storage transferred them. With its driver, nvidia-fs, no call transfers a byte: what the process
wrote or fetched grows far beyond what its calls requested, while the driver is open.
"""

from __future__ import annotations

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.tolerances import HEADER_BYTES, WHOLE_SHARE
from ckptprof.detect.transfers.access_order import AccessOrder, called_median_bytes, measure_layout, share_or_none
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.world.process_counters import ProcessHistories
from ckptprof.detect.world.world import World
from ckptprof.model import Pattern, PatternClass

NVFS = "nvfs"
HIDDEN = "offset, size and time of its operations: nvidia-fs (GPUDirect Storage) transferred it without any call"
OBSERVED_SHARE = 0.5  # of the bytes need a known order before a class is named
_RANDOM_SEQUENTIAL = 0.75  # half of random operations go forward
_RANDOM_CONSECUTIVE = 0.25


def describe_pattern(candidate: Candidate, histories: ProcessHistories, engine: str | None = None) -> Pattern:
    """Describe the pattern of a candidate transferred by an `engine`; None for whatever was not observed."""
    total = candidate.bytes
    order, sizes = measure_layout(candidate.parts, histories)
    known = order.known_bytes
    mapped = sum(part.bytes for part in candidate.parts if part.is_mapped)
    direct = sum(part.direct_bytes for part in candidate.parts)
    is_observed = known >= OBSERVED_SHARE * total  # the rest: mappings, mostly
    return Pattern(
        class_=_classify(order, sizes.called_median_bytes) if is_observed else None,
        sequential_share_bytes=share_or_none(known - order.jumped_back, known),
        consecutive_share_bytes=share_or_none(order.consecutive + order.inferred, known),
        large_share_bytes=share_or_none(order.large, known),
        sequential_share_operations=sizes.sequential_share,
        consecutive_share_operations=sizes.consecutive_share,
        order_known_share_bytes=share_or_none(order.observed_bytes, total),
        operations=sizes.number,
        mean_operation_bytes=sizes.mean_bytes,
        median_operation_bytes=sizes.median_bytes,
        size_histogram=None if sizes.histogram is None else {str(k): list(v) for k, v in sizes.histogram.items()},
        buffered_share_bytes=share_or_none(total - direct - mapped, total),
        direct_share_bytes=share_or_none(direct, total),
        mapped_share_bytes=share_or_none(mapped, total),
        engine=engine,
    )


def classify_transfer(transfer: Transfer) -> PatternClass | None:
    """Classify a single transfer; None if its operations were not counted."""
    sums = transfer.operations
    if sums is None:
        return None
    order = AccessOrder()
    order.add_counted(sums)
    return _classify(order, called_median_bytes([transfer]))


def _classify(order: AccessOrder, called_median_bytes: float | None) -> PatternClass | None:
    if order.known_bytes <= 0:
        return None
    consecutive = (order.consecutive + order.inferred) / order.known_bytes
    sequential = (order.known_bytes - order.jumped_back) / order.known_bytes
    if sequential >= WHOLE_SHARE:
        dense = order.gap_bytes is not None and order.known_bytes >= WHOLE_SHARE * (order.known_bytes + order.gap_bytes)
        if consecutive < WHOLE_SHARE and not dense:
            return PatternClass.STRIDED
        small = called_median_bytes is not None and called_median_bytes < HEADER_BYTES
        large = order.large * 2 >= order.known_bytes
        return PatternClass.SEQUENTIAL_LARGE if large and not small else PatternClass.SEQUENTIAL_SMALL
    if sequential < _RANDOM_SEQUENTIAL and consecutive < _RANDOM_CONSECUTIVE:
        return PatternClass.RANDOM
    return PatternClass.MIXED


def identify_engine(candidate: Candidate, world: World) -> str | None:
    """Identify the driver that transferred most bytes without any call, for processes that have it open."""
    if candidate.is_sent or not candidate.bytes:
        return None
    users = [process for process in candidate.processes if process in world.gpudirect]
    parts = [part for part in candidate.parts if part.process in users and part.operations is None]
    transferred = sum(part.bytes for part in parts if not part.is_mapped)
    if 2 * transferred < candidate.bytes:
        return None
    span = candidate.start_ns, candidate.end_ns
    intervals = [one for process in users for one in world.histories[process].between(*span)]
    called_bytes = sum(one.written_bytes if candidate.writes else one.returned_bytes for one in intervals)
    return NVFS if 2 * called_bytes < transferred else None
