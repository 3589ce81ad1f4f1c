"""Candidates of which too little is known yet: what comes later tells what they were."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.decision_table import Hypothesis
from ckptprof.detect.events.evidence import evidence_of
from ckptprof.detect.events.life import State, Trigger, after, deferred_until_ns
from ckptprof.detect.events.past_events import PastEvent
from ckptprof.detect.events.signal import Signal
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.model import Checkpoint

MAX_HELD = 64
MAX_HELD_FILES = 4096  # of all of them together, but for the last two
_LEAST_HELD = 2
_LIKE = 2.0  # sizes of one series differ by less than this factor


@dataclass(slots=True)
class Deferred:
    """An event that waits."""

    candidate: Candidate
    event: PastEvent
    checkpoint: Checkpoint  # as it would be told: counters are forgotten while it waits
    if_alone: Hypothesis  # what it is if nothing more comes
    state: State = State.DEFERRED


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

        def is_such(held: Deferred) -> bool:
            alike = held.candidate.job == job and not held.event.shapes.isdisjoint(event.shapes)
            return alike and max(held.event.bytes, event.bytes) <= _LIKE * min(held.event.bytes, event.bytes)

        again = Signal("recurs", "recurs", "the job wrote the like of it again", strength=2)
        return self._shown(self._turn(Trigger.SERIES_RECURS, is_such), again)

    def read_again(self, event: PastEvent) -> list[Deferred]:
        """Return those whose files a later run of the same program reads."""
        again = Signal("read-again", "read-again", "a later run of the same program read it")
        found = self._turn(Trigger.READ_BACK, lambda held: not held.event.paths.isdisjoint(event.paths))
        return self._shown(found, again)

    def drop(self, job: str, shapes: frozenset[str]) -> None:
        """Forget those of a series that turned out to be data."""
        self._turn(
            Trigger.SERIES_IS_DATA,
            lambda held: held.candidate.job == job and not held.event.shapes.isdisjoint(shapes),
        )

    def expire(self, now_ns: int, ended: dict[ProcessKey, int]) -> list[Deferred]:
        """Return those for which nothing more will come, and which are a save or a copy alone."""

        def is_due(held: Deferred) -> bool:
            return any(held is one for one in self._over) or now_ns >= _due_ns(held, ended)

        self._held = [*self._over, *self._held]
        something = (Hypothesis.SAVE, Hypothesis.COPY)
        found = self._turn(Trigger.ALONE, lambda held: held.if_alone in something and is_due(held))
        self._turn(Trigger.NOTHING_ALONE, is_due)
        self._over = []
        return found

    def _turn(self, trigger: Trigger, is_such: Callable[[Deferred], bool]) -> list[Deferred]:
        """Move on those of which something is the case; return those that are to be reported."""
        found = [held for held in self._held if is_such(held)]
        self._held = [held for held in self._held if not any(held is one for one in found)]
        for held in found:
            held.state = after(held.state, trigger)
        return [held for held in found if held.state is State.REPORTED]

    def _shown(self, found: list[Deferred], reason: Signal) -> list[Deferred]:
        for held in found:
            more = (*held.checkpoint.evidence, *evidence_of((reason,)))
            held.checkpoint = msgspec.structs.replace(held.checkpoint, evidence=more)
        return found


def _due_ns(held: Deferred, ended: dict[ProcessKey, int]) -> int:
    ends = [ended.get(process) for process in held.candidate.processes]
    known = [end_ns for end_ns in ends if end_ns is not None]
    return deferred_until_ns(held.if_alone, held.event.end_ns, max(known) if len(known) == len(ends) else None)
