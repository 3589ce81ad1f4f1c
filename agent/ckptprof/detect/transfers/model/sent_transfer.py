"""A transfer over TCP, without a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ckptprof.detect.transfers.model.movement import Movement
from ckptprof.detect.transfers.model.sending import Sending
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.world.recording_clock import RecordingClock


@dataclass(slots=True, eq=False)
class SentTransfer(Transfer):
    """Bytes that one process sent to an object store, or received from one. Times are CLOCK_MONOTONIC.

    Its object name is unknown: the payload is encrypted, and never read. `path` only identifies it, and its shape is
    that of all transfers between its process and this port.
    """

    sending: Sending | None = None
    points: Sequence[Movement] = ()
    last_byte_ns: int = 0  # time of its last byte; it ends with the answer to that

    def last_data_ns(self, clock: RecordingClock) -> int:  # noqa: ARG002 - only files have stamps
        """Return when the last byte was transferred."""
        return self.last_byte_ns
