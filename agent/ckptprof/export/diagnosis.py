"""The families of what limited checkpoints; their label values are the closed lists of `verdicts` and three words."""

from __future__ import annotations

import math
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import Metric

from ckptprof.export.columns import Column, Labels, collect, unlabelled
from ckptprof.model import Checkpoint, Kind, Status
from ckptprof.verdicts import Limit, Verdict

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
                    self._seconds.labels(kind, _name(account.limit)).inc(account.seconds)
        if checkpoint.status is Status.INCOMPLETE:  # none to start from
            return
        if checkpoint.end_ns >= self._last_ns.get(checkpoint.kind, 0):  # jobs end in any order
            self._last_ns[checkpoint.kind] = checkpoint.end_ns
            self._last[kind] = verdict

    def collect(self) -> Iterator[Metric]:
        """Yield what has no series before there is something to tell."""
        yield from collect([_GPU_SECONDS], unlabelled(self._gpu_seconds))
        yield from collect([_LIMIT], [(_labels(kind, verdict), verdict) for kind, verdict in self._last.items()])
        yield from collect([_PATH, _EXPECTED], [({"kind": kind}, verdict) for kind, verdict in self._last.items()])


def _labels(kind: str, verdict: Verdict) -> Labels:
    return {"kind": kind, "limit": verdict.limit.value, "confidence": _word(verdict)}


def _finite(seconds: float | None) -> float | None:
    return seconds if seconds is not None and math.isfinite(seconds) else None


def _name(limit: Limit | None) -> str:
    return UNEXPLAINED if limit is None else limit.value


def _word(verdict: Verdict) -> str:
    if verdict.limit is Limit.UNCLEAR:
        return _UNSURE
    return next((word for bound, word in _SURE if verdict.confidence >= bound), _UNSURE)
