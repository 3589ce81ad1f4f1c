"""The time after a save in which training waited for programs of its own that read it: packed, copied, sent."""

from __future__ import annotations

from ckptprof.diagnose.causes import Cause, Spent
from ckptprof.diagnose.sight import Sight, seconds, some
from ckptprof.verdicts import Limit

_BUSY = 0.5  # of a core: it compresses, or sums
_TEXT = "waiting for programs of its own that read what it had saved"


def packed_seconds(sight: Sight) -> float:
    """Return for how long training waited for them."""
    return seconds(sight.measures.packed_ns) or 0.0


def explain(sight: Sight, had_cpu: float) -> list[Spent]:
    """Return the account of that time: of their own code, if that kept a processor. `had_cpu`: as `path` has it."""
    computes = some(sight.measures.packing_busy) >= _BUSY * had_cpu
    text = f"{_TEXT}{', as one computes: it packs' if computes else ''}"
    return [Spent(Cause.PACKED, Limit.SERIALIZE if computes else None, packed_seconds(sight), text)]
