"""What goes on, as the database tells it: what the agent has stored, a moment or a minute after it was."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from ckptprof.model import Checkpoint, CheckpointQuery
from ckptprof.report.live.state import MAX_LAST, Device, State, underway, with_usual
from ckptprof.service.recorder.diagnosing import Diagnosis, ceilings_beside
from ckptprof.service.recorder.pending import going_on
from ckptprof.store.lock import writer_is_alive
from ckptprof.store.reader import StoreReader
from ckptprof.store.series import Series, Values
from ckptprof_collectors.counted import LOOPBACK, MOVED

OLDEST_NS = 150_000_000_000  # of counters: they are stored once a minute
SPAN_NS = 10_000_000_000  # over which a rate is a mean
_EVERY_NS = 10_000_000_000  # the counters of a host with many devices take a while to read
FOLLOWS = "no agent answers: this follows the database, devices are up to a minute old"
NOBODY = "nobody records to this database now: this is what it told last"


class Follower:
    """Asks one database again and again."""

    def __init__(self, reader: StoreReader, *, job: str | None = None) -> None:
        """`job` is a name or a shell pattern; None: all of them."""
        self._reader = reader
        self._job = job
        self._devices: tuple[Device, ...] = ()
        self._is_alive = False
        self._looked_ns: int | None = None

    @property
    def path(self) -> Path:
        """The database."""
        return self._reader.path

    def last(self) -> tuple[Checkpoint, ...]:
        """Return the last checkpoints, the newest first; raises StoreError."""
        found = self._reader.report(CheckpointQuery(job=self._job, limit=MAX_LAST)).checkpoints
        return tuple(sorted(found, key=lambda one: (one.start_ns, one.id), reverse=True))

    def state(self, now_ns: int) -> State:
        """Return what goes on; raises StoreError."""
        self._look(now_ns)
        is_alive = self._is_alive
        sessions = self._reader.sessions()
        newest = sessions[-1] if sessions else None
        last = self.last()
        found = going_on(self._reader.pending().values()) if is_alive else []
        if found:
            found = self._diagnosis.foresee(found, last)
        return State(
            at_ns=now_ns,
            host=newest.host if newest is not None else None,
            level=newest.level if newest is not None and is_alive else None,
            since_ns=newest.start_ns if newest is not None and is_alive else None,
            source="database",
            notes=(FOLLOWS if is_alive else NOBODY,),
            underway=with_usual([underway(one) for one in found], last),
            devices=self._devices if is_alive else (),
            last=last,
        )

    def checkpoint(self, one: Checkpoint) -> Checkpoint | None:
        """Return all that is known of a checkpoint; None if it is not kept any more. Raises StoreError."""
        return self._reader.checkpoint(one.id)

    @cached_property
    def _diagnosis(self) -> Diagnosis:
        return Diagnosis(ceilings=ceilings_beside(self.path))

    def _look(self, now_ns: int) -> None:
        """Look now and then at the counters, and whether somebody records: that takes the lock for an instant."""
        if self._looked_ns is not None and 0 <= now_ns - self._looked_ns < _EVERY_NS:
            return
        self._looked_ns = now_ns
        self._reader.renew()
        self._is_alive = writer_is_alive(self._reader.path) is not False
        names = [one for one in self._reader.entities() if one.partition(":")[0] in MOVED and one != LOOPBACK]
        found = (device(self._reader.series(name, now_ns - OLDEST_NS, now_ns), now_ns) for name in names)
        self._devices = tuple(one for one in found if one is not None)


def device(series: Series, now_ns: int) -> Device | None:
    """Return how fast the counters of a device rose the last time; None if nobody has looked for long."""
    times = series.times_ns
    if len(times) < 2 or now_ns - times[-1] > OLDEST_NS:
        return None
    first = max(0, bisect_right(times, times[-1] - SPAN_NS) - 1)
    kind, _, name = series.entity.partition(":")
    read, written, size, busy = MOVED[kind]
    seconds = (times[-1] - times[first]) / 1e9

    def rate(field: str | None, of: float) -> float | None:
        rose = _rose(series.columns.get(field, ()) if field is not None else (), first)
        return None if rose is None or seconds <= 0 else rose * of / seconds

    share = rate(busy, 1e-3)
    return Device(
        name=name, kind=kind, read_bytes_per_second=rate(read, size), written_bytes_per_second=rate(written, size),
        busy_share=None if share is None else min(share, 1.0), at_ns=times[-1],
    )  # fmt: skip


def _rose(values: Values | Sequence[int], first: int) -> int | None:
    """Return how much a counter rose from a point to the last one; None if it went back or was not read."""
    if not values:
        return None
    before, after = values[first], values[-1]
    return None if before is None or after is None or after < before else after - before
