"""The families of what limited checkpoints; their label values are the closed lists of `verdicts` and three words."""

from __future__ import annotations

import math

from ckptprof.export.exposition import MILLIONTHS, Labelled
from ckptprof.model import Checkpoint, Kind, Status
from ckptprof.verdicts import Limit, Verdict

UNEXPLAINED = "unexplained"
_SURE = ((0.8, "likely"), (0.6, "probably"))  # confidence from which on, as reports say it
_UNSURE = "unclear"


class DiagnosisFamilies:
    """Where the time of checkpoints went, and the last verdict of each kind."""

    def __init__(self) -> None:
        """Start with nothing concluded."""
        self._seconds = Labelled(
            "checkpoint_limit_seconds_total",
            "Time of checkpoints by what it went to, on their critical path.",
            ("kind", "limit"),
            kind="counter",
            form=MILLIONTHS,
        )
        self._gpu_seconds = Labelled(
            "checkpoint_gpu_seconds_total",
            "Time in which checkpoints held training, times its GPUs.",
            (),
            kind="counter",
            form=MILLIONTHS,
        )
        self._last = Labelled(
            "last_checkpoint_limit",
            "What limited the last checkpoint; always 1.",
            ("kind", "limit", "confidence"),
            kind="gauge",
        )
        self._expected = Labelled(
            "last_checkpoint_expected_seconds",
            "Duration that the last checkpoint would have had without its limit.",
            ("kind",),
            kind="gauge",
            form=MILLIONTHS,
        )
        self._last_ns: dict[Kind, int] = {}

    def add(self, checkpoint: Checkpoint, *, first: bool, gpu_seconds: float) -> None:
        """Take a checkpoint; `first`: this verdict is its first one, `gpu_seconds`: what is new of them.

        A later verdict on the same checkpoint changes what is last, but not the counters: they never go back.
        """
        if gpu_seconds > 0:
            self._gpu_seconds.add(gpu_seconds)
        verdict, kind = checkpoint.verdict, checkpoint.kind.value
        if verdict is None:
            return
        if first:
            for account in verdict.accounts:
                if math.isfinite(account.seconds) and account.seconds > 0:
                    self._seconds.add(account.seconds, kind, _name(account.limit))
        if checkpoint.status is Status.INCOMPLETE:  # none to start from
            return
        if checkpoint.end_ns >= self._last_ns.get(checkpoint.kind, 0):  # jobs end in any order
            self._last_ns[checkpoint.kind] = checkpoint.end_ns
            self._tell(verdict, kind)

    def _tell(self, verdict: Verdict, kind: str) -> None:
        self._last.clear(kind)
        self._last.set(1, kind, verdict.limit.value, _word(verdict))
        self._expected.clear(kind)
        if verdict.expected_seconds is not None and math.isfinite(verdict.expected_seconds):
            self._expected.set(verdict.expected_seconds, kind)

    def render(self, out: list[bytes]) -> None:
        """Append every family."""
        for family in (self._seconds, self._gpu_seconds, self._last, self._expected):
            family.render(out)


def _name(limit: Limit | None) -> str:
    return UNEXPLAINED if limit is None else limit.value


def _word(verdict: Verdict) -> str:
    if verdict.limit is Limit.UNCLEAR:
        return _UNSURE
    return next((word for bound, word in _SURE if verdict.confidence >= bound), _UNSURE)
