"""What looks and the trace both saw is reported once: what was counted is exact, looks add names, not bytes."""

from __future__ import annotations

from collections.abc import Sequence

from ckptprof.detect.transfers.model.phase import Phase
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
        for exact in (one for one in traced if one.phase is not Phase.JUDGED):
            exact.take_mapping(transfer)
            if exact.process == transfer.process and exact.writes == transfer.writes:
                exact.take_over(transfer)
                if transfer.closed_ns is not None:
                    book.close(exact, transfer.closed_ns)
    return left


def _explaining(polled: Transfer, book: TracedTransfers) -> list[TracedTransfer]:
    """Return the traced transfers of its file and time: its own process's, or anybody's if it was only credited."""
    by_whom = None if polled.seen_by in _INFERRED and not polled.is_mapped else polled.process
    near = book.near(polled.file, *polled.span, by_whom)
    if polled.is_mapped:
        return [exact for exact in near if exact.faulted_bytes > 0]
    return [exact for exact in near if by_whom or exact.process == polled.process or exact.writes == polled.writes]
