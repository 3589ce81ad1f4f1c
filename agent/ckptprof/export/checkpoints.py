"""The families of checkpoints: each is counted once, however often it is told again as more becomes known of it."""

from __future__ import annotations

from typing import NamedTuple

from ckptprof.export.diagnosis import DiagnosisFamilies
from ckptprof.export.exposition import MILLIONTHS, THOUSANDTHS, Histogram, Labelled, Names
from ckptprof.export.families import DURATION_BOUNDS_SECONDS
from ckptprof.model import Checkpoint, Kind, Status

FRAMEWORKS_CAP = 24
UNKNOWN = "unknown"
CACHES = ("cold", "warm", "partly")
REMEMBERED_CHECKPOINTS = 512  # of which it is kept what was counted: a later account adds the difference


class _Counted(NamedTuple):
    """What was counted of a checkpoint up to now."""

    incomplete: int = 0
    stall_ns: int = 0
    written_bytes: int = 0
    unique_bytes: int = 0
    at_risk_ns: int = 0
    gpu_seconds: float = 0.0
    diagnosed: bool = False


class CheckpointFamilies:
    """Counters of checkpoints; by kind they start at zero, so that a rate sees the first one too."""

    def __init__(self) -> None:
        """Start with nothing seen."""
        self.frameworks = Names(FRAMEWORKS_CAP)
        self._count = Labelled(
            "checkpoints_total", "Checkpoints seen.", ("kind", "framework", "pattern"), kind="counter"
        )
        self._bytes = Labelled("checkpoint_bytes_total", "Bytes of all checkpoints.", ("kind",), kind="counter")
        self._duration = Histogram(
            "checkpoint_duration_seconds",
            "Time from the first creation or data of a checkpoint to its last data or commit.",
            "kind",
            DURATION_BOUNDS_SECONDS,
        )
        self._course = _CourseFamilies()
        self._diagnosis = DiagnosisFamilies()
        self._last = _LastFamilies()
        self._told: dict[str, _Counted] = {}
        for kind in (Kind.SAVE, Kind.RESTORE):
            self._bytes.set(0, kind.value)
            self._duration.ensure(kind.value)

    def add(self, checkpoint: Checkpoint) -> None:
        """Count a checkpoint, or what is new of one that was counted before."""
        earlier = self._told.get(checkpoint.uid)
        counted = _counted(checkpoint, earlier)
        if earlier is None:
            if checkpoint.revision:  # counted so long ago that what was counted is forgotten
                return
            self._first(checkpoint)
            if len(self._told) >= REMEMBERED_CHECKPOINTS:
                del self._told[next(iter(self._told))]
        self._told[checkpoint.uid] = counted
        if checkpoint.kind is Kind.SAVE:
            self._course.more(counted, earlier or _Counted())
            self._last.risk(checkpoint)
        if checkpoint.kind is not Kind.COPY:
            before = earlier or _Counted()
            self._diagnosis.add(
                checkpoint, first=counted.diagnosed and not before.diagnosed,
                gpu_seconds=counted.gpu_seconds - before.gpu_seconds,
            )  # fmt: skip

    def _first(self, checkpoint: Checkpoint) -> None:
        if checkpoint.kind is Kind.COPY:
            self._course.copy()
            return
        kind = checkpoint.kind.value
        framework = UNKNOWN if checkpoint.framework is None else self.frameworks.admit(checkpoint.framework)
        pattern = checkpoint.pattern.class_
        self._count.add(1, kind, framework, UNKNOWN if pattern is None else pattern.value)
        self._bytes.add(max(0, checkpoint.bytes), kind)
        self._duration.observe(_seconds(checkpoint), kind)
        self._course.first(checkpoint)
        self._last.first(checkpoint)

    def render(self, out: list[bytes]) -> None:
        """Append every family."""
        self._count.render(out)
        self._bytes.render(out)
        self._last.render(out)
        self._course.render(out)
        self._diagnosis.render(out)
        self._duration.render(out)


class _CourseFamilies:
    """How checkpoints went."""

    def __init__(self) -> None:
        self._modes = Labelled(
            "checkpoint_saves_total", "Saves, by whether training was held meanwhile.", ("mode",), kind="counter"
        )
        self._caches = Labelled(
            "checkpoint_restores_total", "Restores, by where their bytes came from.", ("cache",), kind="counter"
        )
        self._incomplete = Labelled(
            "incomplete_checkpoints_total", "Broken off, or never committed.", ("kind",), kind="counter"
        )
        self._stall = Labelled(
            "checkpoint_stall_seconds_total", "Time in which saves held training.", (), kind="counter", form=MILLIONTHS
        )
        self._written = Labelled(
            "checkpoint_written_bytes_total",
            "Bytes written by saves, with staging, copies and rewriting.",
            (),
            kind="counter",
        )
        self._unique = Labelled(
            "checkpoint_unique_bytes_total", "Of these, distinct bytes of checkpoints.", (), kind="counter"
        )
        self._at_risk = Labelled(
            "checkpoint_at_risk_seconds_total",
            "Time from the commit of saves until they were on stable storage.",
            (),
            kind="counter",
            form=MILLIONTHS,
        )
        self._copies = Labelled(
            "checkpoint_copies_total", "Copies of checkpoint files, by what trains nothing.", (), kind="counter"
        )
        self._incomplete.set(0, Kind.SAVE.value)
        for family in (self._stall, self._written, self._unique, self._at_risk, self._copies):
            family.set(0)

    def first(self, checkpoint: Checkpoint) -> None:
        if checkpoint.kind is Kind.SAVE:
            self._modes.add(1, UNKNOWN if checkpoint.mode is None else checkpoint.mode.value)
        else:
            self._caches.add(1, checkpoint.cache if checkpoint.cache in CACHES else UNKNOWN)

    def copy(self) -> None:
        self._copies.add(1)

    def more(self, counted: _Counted, earlier: _Counted) -> None:
        for family, now, before, unit, labels in (
            (self._incomplete, counted.incomplete, earlier.incomplete, 1, (Kind.SAVE.value,)),
            (self._stall, counted.stall_ns, earlier.stall_ns, 1e-9, ()),
            (self._written, counted.written_bytes, earlier.written_bytes, 1, ()),
            (self._unique, counted.unique_bytes, earlier.unique_bytes, 1, ()),
            (self._at_risk, counted.at_risk_ns, earlier.at_risk_ns, 1e-9, ()),
        ):
            if now > before:  # a counter never goes back
                family.add((now - before) * unit, *labels)

    def render(self, out: list[bytes]) -> None:
        for family in (self._modes, self._caches, self._incomplete, self._stall, self._written, self._unique):
            family.render(out)
        self._at_risk.render(out)
        self._copies.render(out)


class _LastFamilies:
    """The last save and the last restore."""

    def __init__(self) -> None:
        self._last = Labelled(
            "last_checkpoint_timestamp_seconds",
            "When the last checkpoint ended.",
            ("kind",),
            kind="gauge",
            form=THOUSANDTHS,
        )
        self._duration = Labelled(
            "last_checkpoint_duration_seconds",
            "Duration of the last checkpoint.",
            ("kind",),
            kind="gauge",
            form=MILLIONTHS,
        )
        self._bytes = Labelled("last_checkpoint_bytes", "Bytes of the last checkpoint.", ("kind",), kind="gauge")
        self._at_risk = Labelled(
            "last_checkpoint_at_risk_seconds",
            "How long the last save counted as complete before it was on stable storage.",
            (),
            kind="gauge",
            form=MILLIONTHS,
        )
        self._last_ns: dict[Kind, int] = {}
        self._risk_ns = 0

    def first(self, checkpoint: Checkpoint) -> None:
        kind = checkpoint.kind.value
        if checkpoint.status is Status.INCOMPLETE:  # none to start from
            return
        if checkpoint.end_ns >= self._last_ns.get(checkpoint.kind, 0):  # jobs end in any order
            self._last_ns[checkpoint.kind] = checkpoint.end_ns
            self._last.set(checkpoint.end_ns * 1e-9, kind)
            self._duration.set(_seconds(checkpoint), kind)
            self._bytes.set(checkpoint.bytes, kind)

    def risk(self, checkpoint: Checkpoint) -> None:
        at_risk_ns = checkpoint.at_risk_ns
        if at_risk_ns is not None and checkpoint.end_ns >= self._risk_ns:
            self._risk_ns = checkpoint.end_ns
            self._at_risk.set(at_risk_ns * 1e-9)

    def render(self, out: list[bytes]) -> None:
        for family in (self._last, self._duration, self._bytes, self._at_risk):
            family.render(out)


def _seconds(checkpoint: Checkpoint) -> float:
    return max(0, checkpoint.end_ns - checkpoint.start_ns) * 1e-9


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
