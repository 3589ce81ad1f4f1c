"""A transfer over TCP to a place that is no file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ckptprof.detect.transfers.model.movement import Movement
from ckptprof.detect.transfers.model.sending import Sending
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.world.recording_clock import RecordingClock


@dataclass(slots=True, eq=False)
class SentTransfer(Transfer):
    """What one process sent to an object store, or got from one. Times are CLOCK_MONOTONIC.

    It has no name: what is sent is encrypted, or nobody reads it. `path` only tells it from others, and its shape is
    that of all that moves between its process and this port.
    """

    sending: Sending | None = None
    points: Sequence[Movement] = ()
    last_byte_ns: int = 0  # when its last byte went; it is over once that was answered

    def last_data_ns(self, clock: RecordingClock) -> int:  # noqa: ARG002 - of files a stamp tells
        """Return when the last byte was moved."""
        return self.last_byte_ns
