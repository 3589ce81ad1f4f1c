"""The diagnosis, behind a wall: a fault of it costs a verdict, never the checkpoint; its memory is bounded."""

from __future__ import annotations

import traceback
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import PurePath

import msgspec

from ckptprof.diagnose.ceilings import Ceilings
from ckptprof.diagnose.judging import diagnose
from ckptprof.model import Checkpoint, Kind

HISTORY = 50  # checkpoints of a job
JOBS = 64


def _none() -> Sequence[Ceilings]:
    return ()


class Diagnosis:
    """Remembers the last checkpoints of each job; `complain` is told of each fault, `faults` counts them."""

    def __init__(
        self,
        complain: Callable[[str], None] = lambda _: None,
        *,
        ceilings: Callable[[], Sequence[Ceilings]] = _none,
        gpus: int | None = None,
    ) -> None:
        """`ceilings` is asked at each checkpoint: whoever loads them knows when they change."""
        self._complain = complain
        self._ceilings = ceilings
        self._gpus = gpus
        self._jobs: OrderedDict[str, OrderedDict[str, Checkpoint]] = OrderedDict()
        self.faults = 0

    def take(self, checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
        """Return them with verdict and cost, in their order."""
        return [self._one(checkpoint) for checkpoint in checkpoints]

    def _one(self, checkpoint: Checkpoint) -> Checkpoint:
        try:
            history = tuple(self._jobs.get(checkpoint.job, {}).values())
            told = diagnose(checkpoint, history, self._ceilings(), self._gpus)
        except Exception as error:  # noqa: BLE001 - the checkpoint must be kept whatever this one fault is
            self.faults += 1
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{PurePath(place.filename).name}:{place.lineno}"
            self._complain(f"diagnosis: {type(error).__name__} at {where}: {error}; this checkpoint has no verdict")
            told = checkpoint
        self._remember(told)
        return told

    def _remember(self, checkpoint: Checkpoint) -> None:
        if checkpoint.kind is Kind.COPY:
            return
        series = self._jobs.setdefault(checkpoint.job, OrderedDict())
        self._jobs.move_to_end(checkpoint.job)
        series[checkpoint.uid] = _slim(checkpoint)
        while len(series) > HISTORY:
            series.popitem(last=False)
        while len(self._jobs) > JOBS:
            self._jobs.popitem(last=False)


def _slim(checkpoint: Checkpoint) -> Checkpoint:
    """Return it without what no later verdict asks for: a save of 10,000 files must not be held 50 times."""
    measures = checkpoint.measures
    if measures is not None:
        measures = msgspec.structs.replace(measures, threads=(), processes=(), devices=(), links=())
    return msgspec.structs.replace(
        checkpoint,
        streams=(),
        timeline=(),
        evidence=(),
        writers=checkpoint.writers[:8],
        measures=measures,
        verdict=None,
    )
