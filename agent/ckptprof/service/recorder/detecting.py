"""The detection, behind a wall: a fault of it costs what it was about to judge, never the recording."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import PurePath

from ckptprof.detect.pipeline import Detector
from ckptprof.model import Checkpoint
from ckptprof.recording import Header
from ckptprof_collectors.samples import Frame


class Detection:
    """Starts again after each fault; `complain` gets each fault, `faults` counts them."""

    def __init__(self, header: Header, *, saved_paths: tuple[str, ...], complain: Callable[[str], None]) -> None:
        """Take the header of the recording, and what was saved before it."""
        self._header = header
        self._saved_paths = saved_paths
        self._complain = complain
        self._detector = self._new()
        self._past_forgotten_bytes = 0
        self.faults = 0

    def _new(self) -> Detector:
        return Detector(self._header, saved_paths=self._saved_paths)

    @property
    def active(self) -> bool:
        """Whether something is going on that may become a checkpoint."""
        return self._detector.active

    @property
    def kept_bytes(self) -> int:
        """About what it keeps of what it was fed."""
        return self._detector.kept_bytes

    @property
    def forgotten_bytes(self) -> int:
        """What it forgot early because its budget was full."""
        return self._past_forgotten_bytes + self._detector.forgotten_bytes

    def feed(self, frame: Frame) -> list[Checkpoint]:
        """Take one frame; return the checkpoints that it completes or tells more of."""
        return self._guard(lambda: self._detector.feed(frame))

    def finish(self) -> list[Checkpoint]:
        """Judge what is left: the recording is over."""
        return self._guard(self._detector.finish)

    def _guard(self, step: Callable[[], list[Checkpoint]]) -> list[Checkpoint]:
        try:
            return step()
        except Exception as error:  # noqa: BLE001 - sampling, timelines and metrics must go on whatever this one fault is
            self.faults += 1
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{PurePath(place.filename).name}:{place.lineno}"
            self._complain(
                f"detection: {type(error).__name__} at {where}: {error}; what was going on is lost, it begins anew"
            )
            self._past_forgotten_bytes = self.forgotten_bytes
            self._detector = self._new()
            return []
