"""Candidates of which too little is known yet: what comes later tells what they were."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.past_events import PastEvent
from ckptprof.detect.events.signals.weights import WEIGHTS
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.model import Checkpoint, Evidence

MAX_HELD = 64
MAX_HELD_FILES = 4096  # of all of them together, but for the last two
_DOUBT_NS = 60_000_000_000  # a single save is told after so long
_LEAST_HELD = 2
_ENDED_NS = 3_000_000_000
_SERIES_NS = 3_600_000_000_000  # an unknown trainer may take so long from save to save
_LIKE = 2.0  # sizes of one series differ by less than this factor


class IfAlone(Enum):
    """What a held candidate was, if nothing more comes."""

    SAVE = "save"
    COPY = "copy"
    NOTHING = "nothing"


@dataclass(slots=True)
class Deferred:
    """A candidate with what spoke for and against it when it was over."""

    candidate: Candidate
    evidence: list[Evidence]
    event: PastEvent
    checkpoint: Checkpoint  # as it would be told: counters are forgotten while it waits
    otherwise: IfAlone = field(default=IfAlone.NOTHING)


class DeferredEvents:
    """Holds a bounded number of candidates; the oldest goes first."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._held: list[Deferred] = []
        self._over: list[Deferred] = []

    def hold(self, held: Deferred, otherwise: IfAlone) -> None:
        """Keep one until more is known."""
        held.otherwise = otherwise
        self._held.append(held)
        files = sum(len(one.candidate.parts) for one in self._held)
        while len(self._held) > MAX_HELD or (len(self._held) > _LEAST_HELD and files > MAX_HELD_FILES):
            files -= len(self._held[0].candidate.parts)
            self._over.append(self._held.pop(0))

    def release(self, job: str, event: PastEvent) -> list[Deferred]:
        """Return the earlier ones of a series that was recognised: too little for one is enough for several."""
        reason = Evidence(name="recurs", weight=2 * WEIGHTS["recurs"], text="the job wrote the like of it again")
        return self._take(
            lambda held: (
                held.candidate.job == job
                and bool(held.event.shapes & event.shapes)
                and max(held.event.bytes, event.bytes) <= _LIKE * min(held.event.bytes, event.bytes)
            ),
            reason,
        )

    def read_again(self, event: PastEvent) -> list[Deferred]:
        """Return those whose files a later run of the same program reads."""
        reason = Evidence(
            name="read-again", weight=WEIGHTS["read-again"], text="a later run of the same program read it"
        )
        return self._take(lambda held: bool(held.event.paths & event.paths), reason)

    def drop(self, job: str, shapes: frozenset[str]) -> None:
        """Forget those of a series that turned out to be data."""
        self._held = [held for held in self._held if held.candidate.job != job or not held.event.shapes & shapes]

    def expire(self, now_ns: int, ended: dict[ProcessKey, int]) -> list[tuple[Deferred, IfAlone]]:
        """Return those for which nothing more will come, with what they were then."""
        gone, self._over = self._over, []
        for held in self._held:
            if now_ns >= _due_ns(held, ended):
                gone.append(held)
        self._held = [held for held in self._held if held not in gone]
        return [(held, held.otherwise) for held in gone]

    def _take(self, is_such: Callable[[Deferred], bool], reason: Evidence) -> list[Deferred]:
        found = [held for held in self._held if is_such(held)]
        self._held = [held for held in self._held if held not in found]
        for held in found:
            held.evidence = [*held.evidence, reason]
        return found


def _due_ns(held: Deferred, ended: dict[ProcessKey, int]) -> int:
    due_ns = held.event.end_ns + (_DOUBT_NS if held.otherwise is IfAlone.SAVE else _SERIES_NS)
    if held.otherwise is IfAlone.NOTHING:
        return due_ns  # a later run may read it
    ends = [ended.get(process) for process in held.candidate.processes]
    known = [end_ns for end_ns in ends if end_ns is not None]
    return min(due_ns, max(known) + _ENDED_NS) if known and len(known) == len(ends) else due_ns
