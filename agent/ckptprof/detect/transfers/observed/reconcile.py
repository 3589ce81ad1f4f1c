"""One truth of two sights: what was counted is exact, so that what polling saw of the same adds names, not bytes."""

from __future__ import annotations

from collections.abc import Sequence

from ckptprof.detect.transfers.model.tolerances import LOOK_NS
from ckptprof.detect.transfers.model.traced import TracedTransfer
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.observed.traced_transfers import TracedTransfers

_INFERRED = ("directory", "opening")  # nobody saw the process at the file: it is credited by bytes and times


def unexplained(transfers: Sequence[Transfer], book: TracedTransfers) -> list[Transfer]:
    """Return those that the traced ones do not explain; what the others know besides goes to the traced ones."""
    left = []
    for transfer in transfers:
        traced = [] if isinstance(transfer, TracedTransfer) else _explaining(transfer, book)
        if not traced:
            left.append(transfer)
        for exact in traced:
            if transfer.is_mapped and exact.mapped_bytes < transfer.mapped_bytes:
                # how much of it was touched: large folios come in without an event
                exact.mapping, exact.mapped_bytes = transfer, transfer.mapped_bytes
            if exact.process == transfer.process and exact.writes == transfer.writes:
                _take_over(exact, transfer, book)
    return left


def _explaining(polled: Transfer, book: TracedTransfers) -> list[TracedTransfer]:
    """Return the traced transfers of its file and time: its own process's, or anybody's if it was only credited."""
    found = []
    for exact in book.near(polled.file, *polled.span):
        if polled.is_mapped:
            wanted = exact.process == polled.process and exact.faulted_bytes > 0
        else:
            wanted = exact.process == polled.process or (polled.seen_by in _INFERRED and exact.writes == polled.writes)
        if wanted:
            found.append(exact)
    return found


def mapped_openings(exact: TracedTransfer, book: TracedTransfers) -> list[TracedTransfer]:
    """Return the transfers of one mapped file and process, most faults first: openings share one mapping's pages."""
    found = [
        other
        for other in book.near(exact.file, exact.first_ns, exact.last_ns)
        if other.process == exact.process
        and not other.writes
        and other.faulted_bytes
        and _apart_ns(other, exact) < LOOK_NS
    ]
    return sorted(found, key=lambda other: other.faulted_bytes, reverse=True)


def _apart_ns(one: TracedTransfer, other: TracedTransfer) -> int:
    """Return the time between the faults of two mappings: who maps a file again later touches all of it again."""
    here, there = one.operations, other.operations
    if here is None or there is None:
        return 0
    return max(here.first_ns, there.first_ns) - min(here.last_ns, there.last_ns)


def _take_over(exact: TracedTransfer, polled: Transfer, book: TracedTransfers) -> None:
    """Keep what only polling knows: an unseen name, what the file system says, how it was opened."""
    if not exact.path.startswith("/"):
        exact.path = polled.path
        exact.earlier_path = polled.earlier_path
        exact.version += 1
    exact.append = exact.append or polled.append
    if polled.fact is not None and polled.fact_at_ns >= exact.fact_at_ns:
        exact.fact, exact.fact_at_ns = polled.fact, polled.fact_at_ns
    if polled.closed_ns is not None:
        book.close(exact, polled.closed_ns)
