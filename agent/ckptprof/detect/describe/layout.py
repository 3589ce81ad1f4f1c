"""How the bytes of an event were laid out, and the class of that: by bytes, not operations (design section 5).

Also which engine of cuFile (GPUDirect Storage) transferred them between GPU and storage. With its driver, nvidia-fs, no
call transfers a byte: what the process wrote or fetched grows far beyond what its calls requested, while the driver is
open. Other engines make ordinary calls; that it was cuFile shows in the Python stack of a writing thread.
"""

from __future__ import annotations

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.tolerances import HEADER_BYTES, WHOLE_SHARE
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.order import Order, called_median_bytes, layout_of, share_of
from ckptprof.detect.world.process_counters import Histories
from ckptprof.detect.world.world import World
from ckptprof.frameworks.stacks import CUFILE
from ckptprof.model import Pattern, PatternClass

NVFS, P2PDMA, COMPAT = "nvfs", "p2pdma", "compat"
SEEN_SHARE = 0.5  # of the bytes need a known order before a class is named
_RANDOM_SEQUENTIAL = 0.75  # half of random operations go forward
_RANDOM_CONSECUTIVE = 0.25


def pattern_of(candidate: Candidate, histories: Histories, engine: str | None = None) -> Pattern:
    """Describe the pattern of a candidate transferred by a cuFile `engine`; None for whatever was not observed."""
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
        engine=engine,
    )


def class_of(transfer: Transfer) -> PatternClass | None:
    """Classify a single transfer; None if its operations were not counted."""
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


def engine_of(candidate: Candidate, world: World) -> str | None:
    """Identify the cuFile engine: nvfs, p2pdma or compat; None without evidence of cuFile."""
    if candidate.is_sent or not candidate.bytes:
        return None
    if _is_hidden(candidate, world):
        return NVFS
    looks = (look for process in candidate.processes for look in world.trainers.stacks(process, *_span(candidate)))
    if not any(CUFILE.search(file) for look in looks for thread in look.threads for _, file, _ in thread.frames):
        return None
    known = world.gpudirect.last
    direct = 2 * sum(part.direct_bytes for part in candidate.parts) >= candidate.bytes
    return P2PDMA if direct and known is not None and known.peer_memory else COMPAT


def hidden_of(engine: str | None, world: World) -> tuple[str, ...]:
    """Limitation of transfers by nvidia-fs; empty for other engines."""
    if engine != NVFS:
        return ()
    known = world.gpudirect.last
    off = known is not None and known.driver is not None and not known.counts
    more = "; its statistics are off: `ckptprof doctor` shows how to enable them" if off else ""
    return (
        f"offset, size and time of its operations: nvidia-fs (GPUDirect Storage) transferred it without any call{more}",
    )


def _is_hidden(candidate: Candidate, world: World) -> bool:
    """Whether most bytes were transferred by no call, by processes that have the driver open."""
    users = [process for process in candidate.processes if world.gpudirect.is_used_by(process)]
    parts = [part for part in candidate.parts if part.process in users and part.operations is None]
    moved = sum(part.bytes for part in parts if not part.is_mapped)
    if 2 * moved < candidate.bytes:
        return False
    around = [one for process in users for one in world.histories[process].between(*_span(candidate))]
    called = sum(one.written_bytes if candidate.writes else one.returned_bytes for one in around)
    return 2 * called < moved


def _span(candidate: Candidate) -> tuple[int, int]:
    return candidate.start_ns, candidate.end_ns
