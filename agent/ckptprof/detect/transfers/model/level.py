"""At which level a group of transfers was seen."""

from __future__ import annotations

from collections.abc import Iterable

from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.model import Level

TRACED_SHARE = 0.95  # of the bytes that were not moved by mappings makes the level of the whole


def level_of(transfers: Iterable[Transfer]) -> Level:
    """Return `trace` if the operations of nearly all that was not moved by mappings were counted."""
    exact = others = 0
    for transfer in transfers:
        if transfer.operations is not None:
            exact += transfer.bytes
        elif not transfer.is_mapped:
            others += transfer.bytes
    return Level.TRACE if exact > 0 and exact >= TRACED_SHARE * (exact + others) else Level.POLL
