"""Candidates of which too little is known yet: what comes later tells what they were."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.decision_table import Hypothesis
from ckptprof.detect.events.evidence import evidence_of
from ckptprof.detect.events.past_events import PastEvent
from ckptprof.detect.events.signal import Signal
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.model import Checkpoint

MAX_HELD = 64
MAX_HELD_FILES = 4096  # of all of them together, but for the last two
_DOUBT_NS = 60_000_000_000  # a single save is told after so long
_LEAST_HELD = 2
_ENDED_NS = 3_000_000_000
_SERIES_NS = 3_600_000_000_000  # an unknown trainer may take so long from save to save
_LIKE = 2.0  # sizes of one series differ by less than this factor


@dataclass(slots=True)
class Deferred:
    """An event that waits."""

    candidate: Candidate
    event: PastEvent
    checkpoint: Checkpoint  # as it would be told: counters are forgotten while it waits
    if_alone: Hypothesis  # what it is if nothing more comes


class DeferredEvents:
    """Holds a bounded number of candidates; the oldest goes first."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._held: list[Deferred] = []
        self._over: list[Deferred] = []

    def hold(self, held: Deferred) -> None:
        """Keep one until more is known."""
        self._held.append(held)
        files = sum(len(one.candidate.parts) for one in self._held)
        while len(self._held) > MAX_HELD or (len(self._held) > _LEAST_HELD and files > MAX_HELD_FILES):
            files -= len(self._held[0].candidate.parts)
            self._over.append(self._held.pop(0))

    def release(self, job: str, event: PastEvent) -> list[Deferred]:
        """Return the earlier ones of a series that was recognised: too little for one is enough for several."""
        return self._take(
            lambda held: (
                held.candidate.job == job
                and bool(held.event.shapes & event.shapes)
                and max(held.event.bytes, event.bytes) <= _LIKE * min(held.event.bytes, event.bytes)
            ),
            Signal("recurs", "recurs", "the job wrote the like of it again", strength=2),
        )

    def read_again(self, event: PastEvent) -> list[Deferred]:
        """Return those whose files a later run of the same program reads."""
        again = Signal("read-again", "read-again", "a later run of the same program read it")
        return self._take(lambda held: bool(held.event.paths & event.paths), again)

    def drop(self, job: str, shapes: frozenset[str]) -> None:
        """Forget those of a series that turned out to be data."""
        self._held = [held for held in self._held if held.candidate.job != job or not held.event.shapes & shapes]

    def expire(self, now_ns: int, ended: dict[ProcessKey, int]) -> list[Deferred]:
        """Return those for which nothing more will come, and which are what they are alone."""
        gone, self._over = self._over, []
        for held in self._held:
            if now_ns >= _due_ns(held, ended):
                gone.append(held)
        self._held = [held for held in self._held if held not in gone]
        return gone

    def _take(self, is_such: Callable[[Deferred], bool], reason: Signal) -> list[Deferred]:
        found = [held for held in self._held if is_such(held)]
        self._held = [held for held in self._held if held not in found]
        for held in found:
            more = (*held.checkpoint.evidence, *evidence_of((reason,)))
            held.checkpoint = msgspec.structs.replace(held.checkpoint, evidence=more)
        return found


def _due_ns(held: Deferred, ended: dict[ProcessKey, int]) -> int:
    due_ns = held.event.end_ns + (_DOUBT_NS if held.if_alone is Hypothesis.SAVE else _SERIES_NS)
    if held.if_alone not in (Hypothesis.SAVE, Hypothesis.COPY):
        return due_ns  # a later run may read it
    ends = [ended.get(process) for process in held.candidate.processes]
    known = [end_ns for end_ns in ends if end_ns is not None]
    return min(due_ns, max(known) + _ENDED_NS) if known and len(known) == len(ends) else due_ns
