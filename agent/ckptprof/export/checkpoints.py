"""Metric families of checkpoints: each checkpoint is counted once, later revisions add only the difference.

The values of the label `limit` are the closed list of `verdicts`, `unexplained` included.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import Metric

from ckptprof.export.columns import MetricColumn, collect, unlabelled
from ckptprof.export.labels import UNKNOWN, Names
from ckptprof.export.newest_saves import NewestSave
from ckptprof.model import Checkpoint, Kind, Medium, Status
from ckptprof.verdicts import Limit, Verdict

FRAMEWORKS_CAP = 24
STORAGES_CAP = 4
DURATION_BOUNDS_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400)
CACHES = ("cold", "warm", "partly")
REMEMBERED_CHECKPOINTS = 512  # whose counted values are retained, so that a revision adds the difference

UNEXPLAINED = "unexplained"
_SURE = ((0.8, "likely"), (0.6, "probably"))  # minimum confidence of each word, as in reports
_UNSURE = "unclear"

_GPU_SECONDS = MetricColumn[float](
    "checkpoint_gpu_seconds_total",
    "Time for which checkpoints blocked training, multiplied by its GPUs.",
    lambda seconds: seconds or None,
)
_LIMIT = MetricColumn[Verdict](
    "last_checkpoint_limit", "What limited the last checkpoint; always 1.", lambda _: 1, kind="gauge"
)
_PATH = MetricColumn[Verdict](
    "last_checkpoint_path_seconds",
    "Time from the start of the last checkpoint, or of its stall, to its end.",
    lambda verdict: _finite(verdict.seconds),
    kind="gauge",
)
_EXPECTED = MetricColumn[Verdict](
    "last_checkpoint_expected_seconds",
    "Value of path_seconds without the limit of the last checkpoint.",
    lambda verdict: _finite(verdict.expected_seconds),
    kind="gauge",
)


class DiagnosisFamilies:
    """Families of verdicts: time by limit, and the last verdict of each kind."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Counter(
            "ckptprof_checkpoint_limit_seconds_total",
            "Time on the critical path of checkpoints, by limit.",
            ["kind", "limit"],
            registry=registry,
        )
        self._gpu_seconds = 0.0
        self._last_ns: dict[Kind, int] = {}
        self._last: dict[str, Verdict] = {}
        registry.register(self)

    def add(self, checkpoint: Checkpoint, *, first: bool, gpu_seconds: float) -> None:
        """Add a checkpoint; `first`: this is its first verdict; `gpu_seconds`: the increase.

        A later verdict replaces the last verdict, but does not change counters: they never decrease.
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
        if checkpoint.status is Status.INCOMPLETE:  # never the last checkpoint
            return
        if checkpoint.end_ns >= self._last_ns.get(checkpoint.kind, 0):  # jobs end in any order
            self._last_ns[checkpoint.kind] = checkpoint.end_ns
            self._last[kind] = verdict

    def collect(self) -> Iterator[Metric]:
        """Yield the families that have values."""
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


class _CountedValues(NamedTuple):
    incomplete: int = 0
    stall_ns: int = 0
    written_bytes: int = 0
    unique_bytes: int = 0
    at_risk_ns: int = 0
    gpu_seconds: float = 0.0
    diagnosed: bool = False


def _seconds(checkpoint: Checkpoint) -> float:
    return max(0, checkpoint.end_ns - checkpoint.start_ns) / 1e9


_LAST = (
    MetricColumn[Checkpoint](
        "last_checkpoint_timestamp_seconds", "When the last checkpoint ended.", lambda c: c.end_ns / 1e9, kind="gauge"
    ),
    MetricColumn[Checkpoint](
        "last_checkpoint_duration_seconds", "Duration of the last checkpoint.", _seconds, kind="gauge"
    ),
    MetricColumn[Checkpoint]("last_checkpoint_bytes", "Bytes of the last checkpoint.", lambda c: c.bytes, kind="gauge"),
)
_AT_RISK = MetricColumn[int](
    "last_checkpoint_at_risk_seconds",
    "Time from the commit of the last save until it was on stable storage, at most.",
    lambda at_risk_ns: at_risk_ns / 1e9,
    kind="gauge",
)


class CheckpointFamilies:
    """Families of checkpoints; counters by kind start at zero, so that `rate()` includes the first one."""

    def __init__(self, registry: CollectorRegistry, bounds: Sequence[float] = DURATION_BOUNDS_SECONDS) -> None:
        self.frameworks, self.storages = Names(FRAMEWORKS_CAP), Names(STORAGES_CAP)
        self._count = Counter(
            "ckptprof_checkpoints_total", "Checkpoints observed.", ["kind", "framework", "pattern"], registry=registry
        )
        self._bytes = Counter(
            "ckptprof_checkpoint_bytes_total", "Bytes of all checkpoints.", ["kind"], registry=registry
        )
        self._last: dict[Kind, Checkpoint] = {}
        self._risk_ns = 0
        self._at_risk_ns: int | None = None
        registry.register(self)
        self._course = _CourseFamilies(registry)
        self._diagnosis = DiagnosisFamilies(registry)
        self._storage = _StorageFamilies(registry, self.storages)
        self._newest = NewestSave()
        registry.register(self._newest)
        self._duration = Histogram(
            "ckptprof_checkpoint_duration_seconds",
            "Time from the first creation or data of a checkpoint to its last data or commit.",
            ["kind"],
            buckets=bounds,
            registry=registry,
        )
        self._reported: dict[str, _CountedValues] = {}
        for kind in (Kind.SAVE, Kind.RESTORE):
            self._bytes.labels(kind.value)
            self._duration.labels(kind.value)

    def add(self, checkpoint: Checkpoint) -> bool:
        """Count a checkpoint, or the difference of a revision; return True for a new one."""
        earlier = self._reported.get(checkpoint.uid)
        counted = _counted(checkpoint, earlier)
        if earlier is None:
            if checkpoint.revision:  # a revision of a checkpoint no longer remembered
                return False
            self._first(checkpoint)
            if len(self._reported) >= REMEMBERED_CHECKPOINTS:
                del self._reported[next(iter(self._reported))]
        self._reported[checkpoint.uid] = counted
        self._newest.add(checkpoint)
        before = earlier or _CountedValues()
        if checkpoint.kind is Kind.SAVE:
            self._course.more(counted, before)
            if checkpoint.at_risk_ns is not None and checkpoint.end_ns >= self._risk_ns:
                self._risk_ns = checkpoint.end_ns
                self._at_risk_ns = checkpoint.at_risk_ns
            self._storage.add(checkpoint, is_first=earlier is None, stall_ns=counted.stall_ns - before.stall_ns)
        if checkpoint.kind is not Kind.COPY:
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
        last = self._last.get(checkpoint.kind)
        if checkpoint.status is not Status.INCOMPLETE and (last is None or checkpoint.end_ns >= last.end_ns):
            self._last[checkpoint.kind] = checkpoint  # jobs end in any order

    def collect(self) -> Iterator[Metric]:
        """Yield the families of the last save and restore."""
        yield from collect(_LAST, [({"kind": kind.value}, last) for kind, last in self._last.items()])
        yield from collect([_AT_RISK], unlabelled(self._at_risk_ns))


class _CourseFamilies:
    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"ckptprof_{name}", text, labels, registry=registry)

        self._modes = counter("checkpoint_saves_total", "Saves, by whether they blocked training.", "mode")
        self._caches = counter("checkpoint_restores_total", "Restores, by the source of their bytes.", "cache")
        self._incomplete = counter(
            "incomplete_checkpoints_total", "Checkpoints interrupted, or never committed.", "kind"
        )
        self._stall = counter("checkpoint_stall_seconds_total", "Time for which saves blocked training.")
        self._written = counter(
            "checkpoint_written_bytes_total", "Bytes written by saves, including staging, copies and rewrites."
        )
        self._unique = counter(
            "checkpoint_unique_bytes_total", "Distinct checkpoint bytes of ckptprof_checkpoint_written_bytes_total."
        )
        self._at_risk = counter(
            "checkpoint_at_risk_seconds_total", "Time from the commit of saves until they were on stable storage."
        )
        self._copies = counter("checkpoint_copies_total", "Copies of checkpoint files by processes that do not train.")
        self._incomplete.labels(Kind.SAVE.value)

    def first(self, checkpoint: Checkpoint) -> None:
        if checkpoint.kind is Kind.SAVE:
            self._modes.labels(UNKNOWN if checkpoint.mode is None else checkpoint.mode.value).inc()
        else:
            self._caches.labels(checkpoint.cache if checkpoint.cache in CACHES else UNKNOWN).inc()

    def copy(self) -> None:
        self._copies.inc()

    def more(self, counted: _CountedValues, earlier: _CountedValues) -> None:
        for counter, now, before, unit in (
            (self._incomplete.labels(Kind.SAVE.value), counted.incomplete, earlier.incomplete, 1),
            (self._stall, counted.stall_ns, earlier.stall_ns, 1e-9),
            (self._written, counted.written_bytes, earlier.written_bytes, 1),
            (self._unique, counted.unique_bytes, earlier.unique_bytes, 1),
            (self._at_risk, counted.at_risk_ns, earlier.at_risk_ns, 1e-9),
        ):
            counter.inc(max(0, now - before) * unit)  # counters never decrease


class _StorageFamilies:
    """Saves by the type of their file system, so that a fleet compares its storage systems."""

    def __init__(self, registry: CollectorRegistry, names: Names) -> None:
        self._names = names
        self._seconds, self._bytes, self._stall = (
            Counter(f"ckptprof_storage_{name}", text, ["storage"], registry=registry)
            for name, text in (
                ("save_seconds_total", "Duration of saves, by type of file system."),
                ("saved_bytes_total", "Bytes of saves, by type of file system."),
                ("stall_seconds_total", "Time for which saves blocked training, by type of file system."),
            )
        )

    def add(self, save: Checkpoint, *, is_first: bool, stall_ns: int) -> None:
        mount = None if save.measures is None else save.measures.mount
        on_files = UNKNOWN if mount is None else mount.fs_type
        storage = self._names.admit("object store" if save.medium is Medium.OBJECT else on_files)
        if is_first:
            self._seconds.labels(storage).inc(_seconds(save))
            self._bytes.labels(storage).inc(max(0, save.bytes))
        self._stall.labels(storage).inc(max(0, stall_ns) * 1e-9)


def _counted(checkpoint: Checkpoint, earlier: _CountedValues | None) -> _CountedValues:
    both = (
        checkpoint.written_bytes is not None and checkpoint.unique_bytes is not None
    )  # one alone would distort their ratio
    gpu_seconds = None if checkpoint.cost is None else checkpoint.cost.gpu_seconds
    before = _CountedValues() if earlier is None else earlier
    return _CountedValues(
        incomplete=int(checkpoint.status is Status.INCOMPLETE),
        stall_ns=checkpoint.stall_ns or 0,
        written_bytes=(checkpoint.written_bytes or 0) if both else 0,
        unique_bytes=(checkpoint.unique_bytes or 0) if both else 0,
        at_risk_ns=checkpoint.at_risk_ns or 0,
        gpu_seconds=max(before.gpu_seconds, gpu_seconds or 0.0),
        diagnosed=before.diagnosed or checkpoint.verdict is not None,
    )
