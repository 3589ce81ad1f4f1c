"""What a process sent over TCP to a place that is no file, as the counters of its connections show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ckptprof.detect.transfers.model.movement import Movement
from ckptprof.detect.transfers.model.transfer import Transfer


@dataclass(slots=True, eq=False)
class SentTransfer(Transfer):
    """What one process sent to one port of one or more addresses, without a longer pause. Times are CLOCK_MONOTONIC.

    It has no name: what is sent is encrypted, or nobody reads it. `path` only tells it from others, and its shape is
    that of all that goes to such a port.
    """

    endpoints: Mapping[tuple[str, int], int] = field(default_factory=dict)
    connections: int = 0
    points: Sequence[Movement] = ()
