"""The families of checkpoints: each is counted once, however often it is told again as more becomes known of it.

The label values of what limited them are the closed lists of `verdicts` and three words.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import Metric

from ckptprof.export.columns import Column, collect, unlabelled
from ckptprof.export.labels import UNKNOWN, Names
from ckptprof.export.newest import Newest
from ckptprof.model import Checkpoint, Kind, Status
from ckptprof.verdicts import Limit, Verdict

FRAMEWORKS_CAP = 24
DURATION_BOUNDS_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400)
CACHES = ("cold", "warm", "partly")
REMEMBERED_CHECKPOINTS = 512  # of which it is kept what was counted: a later account adds the difference

UNEXPLAINED = "unexplained"
_SURE = ((0.8, "likely"), (0.6, "probably"))  # confidence from which on, as reports say it
_UNSURE = "unclear"

_GPU_SECONDS = Column[float](
    "checkpoint_gpu_seconds_total",
    "Time in which checkpoints blocked training, times its GPUs.",
    lambda seconds: seconds or None,
)
_LIMIT = Column[Verdict](
    "last_checkpoint_limit", "What limited the last checkpoint; always 1.", lambda _: 1, kind="gauge"
)
_PATH = Column[Verdict](
    "last_checkpoint_path_seconds",
    "Time from when training stopped for the last checkpoint, if that was seen, until it was complete.",
    lambda verdict: _finite(verdict.seconds),
    kind="gauge",
)
_EXPECTED = Column[Verdict](
    "last_checkpoint_expected_seconds",
    "What its path_seconds would have been without the limit of the last checkpoint.",
    lambda verdict: _finite(verdict.expected_seconds),
    kind="gauge",
)


class DiagnosisFamilies:
    """Where the time of checkpoints went, and the last verdict of each kind."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Counter(
            "ckptprof_checkpoint_limit_seconds_total",
            "Time of checkpoints by what it went to, on their critical path.",
            ["kind", "limit"],
            registry=registry,
        )
        self._gpu_seconds = 0.0
        self._last_ns: dict[Kind, int] = {}
        self._last: dict[str, Verdict] = {}
        registry.register(self)

    def add(self, checkpoint: Checkpoint, *, first: bool, gpu_seconds: float) -> None:
        """Take a checkpoint; `first`: this verdict is its first one, `gpu_seconds`: what is new of them.

        A later verdict on the same checkpoint changes what is last, but not the counters: they never go back.
        """
        self._gpu_seconds += max(0.0, gpu_seconds)
        verdict, kind = checkpoint.verdict, checkpoint.kind.value
        if verdict is None:
            return
        if first:
            for account in verdict.accounts:
                if math.isfinite(account.seconds) and account.seconds > 0:
                    limit = UNEXPLAINED if account.limit is None else account.limit.value
                    self._seconds.labels(kind, limit).inc(account.seconds)
        if checkpoint.status is Status.INCOMPLETE:  # none to start from
            return
        if checkpoint.end_ns >= self._last_ns.get(checkpoint.kind, 0):  # jobs end in any order
            self._last_ns[checkpoint.kind] = checkpoint.end_ns
            self._last[kind] = verdict

    def collect(self) -> Iterator[Metric]:
        """Yield what has no series before there is something to tell."""
        yield from collect([_GPU_SECONDS], unlabelled(self._gpu_seconds))
        limits = [
            ({"kind": kind, "limit": verdict.limit.value, "confidence": _word(verdict)}, verdict)
            for kind, verdict in self._last.items()
        ]
        yield from collect([_LIMIT], limits)
        yield from collect([_PATH, _EXPECTED], [({"kind": kind}, verdict) for kind, verdict in self._last.items()])


def _finite(seconds: float | None) -> float | None:
    return seconds if seconds is not None and math.isfinite(seconds) else None


def _word(verdict: Verdict) -> str:
    if verdict.limit is Limit.UNCLEAR:
        return _UNSURE
    return next((word for bound, word in _SURE if verdict.confidence >= bound), _UNSURE)


class _Counted(NamedTuple):
    incomplete: int = 0
    stall_ns: int = 0
    written_bytes: int = 0
    unique_bytes: int = 0
    at_risk_ns: int = 0
    gpu_seconds: float = 0.0
    diagnosed: bool = False


class CheckpointFamilies:
    """Counters of checkpoints; by kind they start at zero, so that a rate sees the first one too."""

    def __init__(self, registry: CollectorRegistry, bounds: Sequence[float] = DURATION_BOUNDS_SECONDS) -> None:
        self.frameworks = Names(FRAMEWORKS_CAP)
        self._count = Counter(
            "ckptprof_checkpoints_total", "Checkpoints seen.", ["kind", "framework", "pattern"], registry=registry
        )
        self._bytes = Counter(
            "ckptprof_checkpoint_bytes_total", "Bytes of all checkpoints.", ["kind"], registry=registry
        )
        self._last = _LastFamilies(registry)
        self._course = _CourseFamilies(registry)
        self._diagnosis = DiagnosisFamilies(registry)
        self._newest = Newest()
        registry.register(self._newest)
        self._duration = Histogram(
            "ckptprof_checkpoint_duration_seconds",
            "Time from the first creation or data of a checkpoint to its last data or commit.",
            ["kind"],
            buckets=bounds,
            registry=registry,
        )
        self._told: dict[str, _Counted] = {}
        for kind in (Kind.SAVE, Kind.RESTORE):
            self._bytes.labels(kind.value)
            self._duration.labels(kind.value)

    def add(self, checkpoint: Checkpoint) -> bool:
        """Count a checkpoint, or what is new of one that was counted before; return whether it is told first."""
        earlier = self._told.get(checkpoint.uid)
        counted = _counted(checkpoint, earlier)
        if earlier is None:
            if checkpoint.revision:  # counted so long ago that what was counted is forgotten
                return False
            self._first(checkpoint)
            if len(self._told) >= REMEMBERED_CHECKPOINTS:
                del self._told[next(iter(self._told))]
        self._told[checkpoint.uid] = counted
        self._newest.add(checkpoint)
        if checkpoint.kind is Kind.SAVE:
            self._course.more(counted, earlier or _Counted())
            self._last.risk(checkpoint)
        if checkpoint.kind is not Kind.COPY:
            before = earlier or _Counted()
            self._diagnosis.add(
                checkpoint, first=counted.diagnosed and not before.diagnosed,
                gpu_seconds=counted.gpu_seconds - before.gpu_seconds,
            )  # fmt: skip
        return earlier is None

    def _first(self, checkpoint: Checkpoint) -> None:
        if checkpoint.kind is Kind.COPY:
            self._course.copy()
            return
        kind = checkpoint.kind.value
        framework = UNKNOWN if checkpoint.framework is None else self.frameworks.admit(checkpoint.framework)
        pattern = checkpoint.pattern.class_
        self._count.labels(kind, framework, UNKNOWN if pattern is None else pattern.value).inc()
        self._bytes.labels(kind).inc(max(0, checkpoint.bytes))
        self._duration.labels(kind).observe(_seconds(checkpoint), exemplar={"uid": checkpoint.uid})
        self._course.first(checkpoint)
        self._last.first(checkpoint)


class _CourseFamilies:
    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"ckptprof_{name}", text, labels, registry=registry)

        self._modes = counter("checkpoint_saves_total", "Saves, by whether training was blocked meanwhile.", "mode")
        self._caches = counter("checkpoint_restores_total", "Restores, by where their bytes came from.", "cache")
        self._incomplete = counter("incomplete_checkpoints_total", "Broken off, or never committed.", "kind")
        self._stall = counter("checkpoint_stall_seconds_total", "Time in which saves blocked training.")
        self._written = counter(
            "checkpoint_written_bytes_total", "Bytes written by saves, with staging, copies and rewriting."
        )
        self._unique = counter("checkpoint_unique_bytes_total", "Of these, distinct bytes of checkpoints.")
        self._at_risk = counter(
            "checkpoint_at_risk_seconds_total", "Time from the commit of saves until they were on stable storage."
        )
        self._copies = counter("checkpoint_copies_total", "Copies of checkpoint files, by what trains nothing.")
        self._incomplete.labels(Kind.SAVE.value)

    def first(self, checkpoint: Checkpoint) -> None:
        if checkpoint.kind is Kind.SAVE:
            self._modes.labels(UNKNOWN if checkpoint.mode is None else checkpoint.mode.value).inc()
        else:
            self._caches.labels(checkpoint.cache if checkpoint.cache in CACHES else UNKNOWN).inc()

    def copy(self) -> None:
        self._copies.inc()

    def more(self, counted: _Counted, earlier: _Counted) -> None:
        for counter, now, before, unit in (
            (self._incomplete.labels(Kind.SAVE.value), counted.incomplete, earlier.incomplete, 1),
            (self._stall, counted.stall_ns, earlier.stall_ns, 1e-9),
            (self._written, counted.written_bytes, earlier.written_bytes, 1),
            (self._unique, counted.unique_bytes, earlier.unique_bytes, 1),
            (self._at_risk, counted.at_risk_ns, earlier.at_risk_ns, 1e-9),
        ):
            counter.inc(max(0, now - before) * unit)  # a counter never goes back


def _seconds(checkpoint: Checkpoint) -> float:
    return max(0, checkpoint.end_ns - checkpoint.start_ns) / 1e9


_LAST = (
    Column[Checkpoint](
        "last_checkpoint_timestamp_seconds", "When the last checkpoint ended.", lambda c: c.end_ns / 1e9, kind="gauge"
    ),
    Column[Checkpoint]("last_checkpoint_duration_seconds", "Duration of the last checkpoint.", _seconds, kind="gauge"),
    Column[Checkpoint]("last_checkpoint_bytes", "Bytes of the last checkpoint.", lambda c: c.bytes, kind="gauge"),
)
_AT_RISK = Column[int](
    "last_checkpoint_at_risk_seconds",
    "How long the last save counted as complete before it was on stable storage, at most.",
    lambda at_risk_ns: at_risk_ns / 1e9,
    kind="gauge",
)


class _LastFamilies:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._last: dict[Kind, Checkpoint] = {}
        self._risk_ns = 0
        self._at_risk_ns: int | None = None
        registry.register(self)

    def first(self, checkpoint: Checkpoint) -> None:
        if checkpoint.status is Status.INCOMPLETE:  # none to start from
            return
        last = self._last.get(checkpoint.kind)
        if last is None or checkpoint.end_ns >= last.end_ns:  # jobs end in any order
            self._last[checkpoint.kind] = checkpoint

    def risk(self, checkpoint: Checkpoint) -> None:
        if checkpoint.at_risk_ns is not None and checkpoint.end_ns >= self._risk_ns:
            self._risk_ns = checkpoint.end_ns
            self._at_risk_ns = checkpoint.at_risk_ns

    def collect(self) -> Iterator[Metric]:
        yield from collect(_LAST, [({"kind": kind.value}, last) for kind, last in self._last.items()])
        yield from collect([_AT_RISK], unlabelled(self._at_risk_ns))


def _counted(checkpoint: Checkpoint, earlier: _Counted | None) -> _Counted:
    both = checkpoint.written_bytes is not None and checkpoint.unique_bytes is not None  # or their ratio would lie
    gpu_seconds = None if checkpoint.cost is None else checkpoint.cost.gpu_seconds
    before = _Counted() if earlier is None else earlier
    return _Counted(
        incomplete=int(checkpoint.status is Status.INCOMPLETE),
        stall_ns=checkpoint.stall_ns or 0,
        written_bytes=(checkpoint.written_bytes or 0) if both else 0,
        unique_bytes=(checkpoint.unique_bytes or 0) if both else 0,
        at_risk_ns=checkpoint.at_risk_ns or 0,
        gpu_seconds=max(before.gpu_seconds, gpu_seconds or 0.0),
        diagnosed=before.diagnosed or checkpoint.verdict is not None,
    )
