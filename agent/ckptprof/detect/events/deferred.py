"""Events of which too little is known yet: what comes later tells what they were."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from ckptprof.detect.events.decision import evidence_of
from ckptprof.detect.events.decision_table import Hypothesis
from ckptprof.detect.events.event import Event
from ckptprof.detect.events.life import State, Trigger, after, deferred_until_ns
from ckptprof.detect.events.signal import Signal
from ckptprof.detect.tolerances import MAX_EACH, MAX_FILES, is_like
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.model import Checkpoint

_LEAST_HELD = 2


@dataclass(slots=True, eq=False)
class Deferred:
    """An event that waits."""

    event: Event
    checkpoint: Checkpoint  # as it would be told: counters are forgotten while it waits
    if_alone: Hypothesis  # what it is if nothing more comes
    has_room: bool = True

    def is_of(self, event: Event) -> bool:
        """Return whether it is of a series with a later one."""
        return self.event.job == event.job and not self.event.shapes.isdisjoint(event.shapes)

    def is_due(self, now_ns: int, ended: dict[ProcessKey, int]) -> bool:
        """Return whether it is waited for no longer."""
        ends = [ended.get(process) for process in self.event.processes]
        known = [end_ns for end_ns in ends if end_ns is not None]
        writers_ended_ns = max(known) if len(known) == len(ends) else None
        return not self.has_room or now_ns >= deferred_until_ns(self.if_alone, self.event.end_ns, writers_ended_ns)


class DeferredEvents:
    """Holds a bounded number of events; the oldest goes first."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._held: list[Deferred] = []

    def hold(self, held: Deferred) -> None:
        """Keep one until more is known."""
        self._held.append(held)
        kept = [one for one in self._held if one.has_room]
        files = sum(len(one.event.parts) for one in kept)
        while len(kept) > MAX_EACH or (len(kept) > _LEAST_HELD and files > MAX_FILES):
            files -= len(kept[0].event.parts)
            kept.pop(0).has_room = False

    def release(self, event: Event) -> list[Deferred]:
        """Return the earlier ones of a series that was recognised: too little for one is enough for several."""

        def is_such(held: Deferred) -> bool:
            return held.is_of(event) and is_like(held.event.bytes, event.bytes)

        again = Signal("recurs", "recurs", "the job wrote the like of it again", strength=2)
        return self._turn(Trigger.SERIES_RECURS, is_such, again)

    def read_again(self, event: Event) -> list[Deferred]:
        """Return those whose files a later run of the same program reads."""
        again = Signal("read-again", "read-again", "a later run of the same program read it")
        paths = event.remembered.paths
        return self._turn(Trigger.READ_BACK, lambda held: not held.event.remembered.paths.isdisjoint(paths), again)

    def drop(self, event: Event) -> None:
        """Forget those of a series that turned out to be data."""
        self._turn(Trigger.SERIES_IS_DATA, lambda held: held.is_of(event))

    def expire(self, now_ns: int, ended: dict[ProcessKey, int]) -> list[Deferred]:
        """Return those for which nothing more will come, and which are a save or a copy alone."""
        something = (Hypothesis.SAVE, Hypothesis.COPY)
        found = self._turn(Trigger.ALONE, lambda held: held.if_alone in something and held.is_due(now_ns, ended))
        self._turn(Trigger.NOTHING_ALONE, lambda held: held.is_due(now_ns, ended))
        return found

    def _turn(self, trigger: Trigger, is_such: Callable[[Deferred], bool], *reasons: Signal) -> list[Deferred]:
        """Move on those of which something is the case; return those that are to be reported, with the reasons."""
        found = [held for held in self._held if is_such(held)]
        self._held = [held for held in self._held if held not in found]
        for held in found:
            evidence = (*held.checkpoint.evidence, *evidence_of(reasons))
            held.checkpoint = msgspec.structs.replace(held.checkpoint, evidence=evidence)
        return found if after(State.DEFERRED, trigger) is State.REPORTED else []
