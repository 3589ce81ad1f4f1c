"""The diagnosis, isolated: a fault costs a verdict, never the checkpoint; its memory is bounded."""

from __future__ import annotations

import contextlib
import traceback
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath

import msgspec

from ckptprof.diagnose.ceilings import Ceilings
from ckptprof.errors import StoreError
from ckptprof.model import Checkpoint, Kind
from ckptprof.service.probing.stored_ceilings import FOLDER, load_ceilings, state_directory
from ckptprof_collectors.abandoned import call_with_timeout
from ckptprof_collectors.privileges import RAISED

GPUS_SECONDS = 2.0
HISTORY = 50  # checkpoints of a job
JOBS = 64


def gpu_counter() -> Callable[[Checkpoint], int | None]:
    """Return a function that counts the GPUs used by the running processes of a checkpoint; None: unknown."""
    from ckptprof_collectors.gpus.nvml import NvmlGpus  # noqa: PLC0415 - the sampler starts first

    gpus = NvmlGpus()

    def used(checkpoint: Checkpoint) -> int | None:
        measures = checkpoint.measures
        pids = {one.pid for one in measures.processes} if measures is not None else set()
        try:  # a hanging driver must not block the recorder
            return call_with_timeout(
                "gpus", lambda: gpus.count_used_by(pids | {one.pid for one in checkpoint.writers}), GPUS_SECONDS
            )
        except TimeoutError:
            return None

    return used


def ceilings_of_database(db: str | Path | None) -> Callable[[], Sequence[Ceilings]]:
    """Return a function that loads the ceilings in the folder of a database, again when that changes.

    It returns none if the folder is unknown.
    """
    try:
        state_dir = state_directory(None if db is None else str(db))
    except StoreError:
        return tuple
    known: Sequence[Ceilings] = ()
    known_ns: int | None = None

    def load_if_changed() -> Sequence[Ceilings]:
        nonlocal known, known_ns
        changed_ns = None
        with contextlib.suppress(OSError):
            changed_ns = (state_dir / FOLDER).stat().st_mtime_ns
        if changed_ns != known_ns:
            known_ns = changed_ns
            with RAISED:  # only root can read ceilings measured by root
                known = load_ceilings(state_dir)
        return known

    load_if_changed()
    return load_if_changed


class Diagnosis:
    """Remembers the last checkpoints of each job; `complain` gets each fault, `faults` counts them."""

    def __init__(
        self,
        complain: Callable[[str], None] = lambda _: None,
        *,
        ceilings: Callable[[], Sequence[Ceilings]] = tuple,
        gpus: Callable[[Checkpoint], int | None] = lambda _: None,
    ) -> None:
        """`ceilings` and `gpus` are called for each checkpoint."""
        from ckptprof.diagnose import diagnosis  # noqa: PLC0415 - the rules are many files, and the sampler starts first

        self._diagnose = diagnosis.diagnose
        self._complain = complain
        self._ceilings = ceilings
        self._gpus = gpus
        self._jobs: OrderedDict[str, OrderedDict[str, Checkpoint]] = OrderedDict()
        self.faults = 0

    def diagnose_all(self, checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
        """Return them with verdict and cost, in the same order."""
        return [self._diagnose_final(checkpoint) for checkpoint in checkpoints]

    def diagnose_unfinished(self, unfinished: Sequence[Checkpoint], history: Sequence[Checkpoint]) -> list[Checkpoint]:
        """Return them with the verdict as if they had ended now, by a history of earlier ones of any job."""
        return [self._diagnosed(one, history) for one in unfinished]

    def _diagnose_final(self, checkpoint: Checkpoint) -> Checkpoint:
        reported = self._diagnosed(checkpoint, gpus=self._gpus)
        self._remember(reported)
        return reported

    def _diagnosed(
        self,
        checkpoint: Checkpoint,
        history: Sequence[Checkpoint] | None = None,
        *,
        gpus: Callable[[Checkpoint], int | None] = lambda _: None,
    ) -> Checkpoint:
        try:
            known = tuple(self._jobs.get(checkpoint.job, {}).values()) if history is None else history
            return self._diagnose(checkpoint, known, self._ceilings(), None, gpus(checkpoint))
        except Exception as error:  # noqa: BLE001 - any fault must keep the checkpoint
            self.faults += 1
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{PurePath(place.filename).name}:{place.lineno}"
            failure = f"{type(error).__name__} at {where}: {error}"
            self._complain(f"diagnosis failed: {failure}; this checkpoint has no verdict")
            return checkpoint

    def _remember(self, checkpoint: Checkpoint) -> None:
        if checkpoint.kind is Kind.COPY:
            return
        series = self._jobs.setdefault(checkpoint.job, OrderedDict())
        self._jobs.move_to_end(checkpoint.job)
        series[checkpoint.uid] = _for_history(checkpoint)
        while len(series) > HISTORY:
            series.popitem(last=False)
        while len(self._jobs) > JOBS:
            self._jobs.popitem(last=False)


def _for_history(checkpoint: Checkpoint) -> Checkpoint:
    """Drop the fields that no later verdict reads: a save of 10,000 files must not be retained 50 times."""
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
