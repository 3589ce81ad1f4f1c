"""What `ckptprof live` shows of a database: checkpoints under way as the recorder stored them, and the last ones."""

from __future__ import annotations

import fnmatch
from functools import cached_property
from pathlib import Path

from ckptprof.model import Checkpoint, CheckpointQuery
from ckptprof.report.live.state import MAX_LAST, State, underway, with_usual
from ckptprof.service.live.devices import DeviceRates
from ckptprof.service.recorder.diagnosing import Diagnosis, ceilings_beside
from ckptprof.service.recorder.pending import going_on
from ckptprof.store.reader import StoreReader

_SILENT_NS = 30_000_000_000  # a recorder stores every ten seconds that it runs
STOPPED = "no recorder is running for this database: this is its last state"


class Follower:
    """Reads one database again and again."""

    def __init__(self, reader: StoreReader, devices: DeviceRates, *, job: str | None = None) -> None:
        """`job` is a name or a shell pattern; None: all of them."""
        self._reader = reader
        self._devices = devices
        self._job = job

    @property
    def path(self) -> Path:
        """The database."""
        return self._reader.path

    def state(self, now_ns: int) -> State:
        """Return what goes on; raises StoreError."""
        self._reader.renew()
        sessions = self._reader.sessions()
        session = sessions[-1] if sessions else None
        last = self._last()
        if session is None or session.clean or now_ns - session.end_ns > _SILENT_NS:
            host = None if session is None else session.host
            return State(at_ns=now_ns, host=host, level=None, since_ns=None, notes=(STOPPED,), last=last)
        found = [one for one in going_on(self._reader.pending().values()) if self._is_chosen(one)]
        if found:
            found = self._diagnosis.foresee(found, last)
        return State(
            at_ns=now_ns,
            host=session.host,
            level=session.level,
            since_ns=session.start_ns,
            dropped_frames=session.dropped_frames,
            underway=with_usual([underway(one) for one in found], last),
            devices=self._devices.read() if session.boot_id == self._devices.boot_id else (),
            last=last,
        )

    def checkpoint(self, one: Checkpoint) -> Checkpoint | None:
        """Return all that is known of a checkpoint; None if it was deleted since. Raises StoreError."""
        return self._reader.checkpoint(one.id)

    def _last(self) -> tuple[Checkpoint, ...]:
        found = self._reader.report(CheckpointQuery(job=self._job, limit=MAX_LAST)).checkpoints
        return tuple(sorted(found, key=lambda one: (one.start_ns, one.id), reverse=True))

    def _is_chosen(self, one: Checkpoint) -> bool:
        return self._job is None or fnmatch.fnmatchcase(one.job, self._job)

    @cached_property
    def _diagnosis(self) -> Diagnosis:
        return Diagnosis(ceilings=ceilings_beside(self.path))
