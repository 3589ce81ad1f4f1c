"""The detection, behind a wall: a fault of it costs what it was about to judge, never the recording."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import TypeVar

from ckptprof.detect.events.deferred import Pending
from ckptprof.detect.pipeline import Detector
from ckptprof.model import Checkpoint
from ckptprof.recording import Header
from ckptprof_collectors.samples import Frame

_Told = TypeVar("_Told", Checkpoint, Pending)


class Detection:
    """Starts again after each fault; `complain` gets each fault, `faults` counts them."""

    def __init__(
        self,
        header: Header,
        *,
        saved_paths: tuple[str, ...],
        complain: Callable[[str], None],
        before: Detection | None = None,
    ) -> None:
        self._header = header
        self._saved_paths = saved_paths
        self._complain = complain
        self.detector: Detector = self._new(before.detector if before is not None else None)
        self._past_forgotten_bytes = 0
        self.faults = 0

    def _new(self, before: Detector | None = None) -> Detector:
        return Detector(self._header, saved_paths=self._saved_paths, before=before)

    @property
    def active(self) -> bool:
        """Whether something is going on that may become a checkpoint."""
        return self.detector.active

    @property
    def kept_bytes(self) -> int:
        """About what it keeps of what it was fed."""
        return self.detector.kept_bytes

    @property
    def forgotten_bytes(self) -> int:
        """What it forgot early because its budget was full."""
        return self._past_forgotten_bytes + self.detector.forgotten_bytes

    def adopt(self, left: Sequence[Pending]) -> list[Checkpoint]:
        """Take what the session before left pending; return what is sure of it."""
        return self._guard(lambda: self.detector.adopt(left))

    def pending(self, hurried: Callable[[], bool] = lambda: False, *, closely: bool = True) -> list[Pending]:
        """Return what waits to be sure, and what would be told of what goes on if the recording ended now."""
        return self._guard(lambda: self.detector.pending(hurried, closely=closely))

    @property
    def left_out_events(self) -> int:
        """How many events the last `pending` had no room for that the one before it did not leave out."""
        return self.detector.left_out_events

    def feed(self, frame: Frame) -> list[Checkpoint]:
        """Take one frame; return the checkpoints that it completes or tells more of."""
        return self._guard(lambda: self.detector.feed(frame))

    def finish(self) -> list[Checkpoint]:
        """Judge what is left: the recording is over."""
        return self._guard(self.detector.finish)

    def pause(self, hurried: Callable[[], bool]) -> list[Checkpoint]:
        """Judge what is open, until `hurried` says so: the recording is over, and another one follows."""
        return self._guard(lambda: self.detector.pause(hurried))

    def _guard(self, step: Callable[[], list[_Told]]) -> list[_Told]:
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
            self.detector = self._new()
            return []
