"""Events that are not reported yet: what comes later tells what they were."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ckptprof.detect.events.decision import evidence_of
from ckptprof.detect.events.decision_table import Hypothesis
from ckptprof.detect.events.past_events import PastEvent, PastEvents
from ckptprof.detect.events.signal import Signal
from ckptprof.detect.events.waits import deferred_until_ns
from ckptprof.detect.tolerances import MAX_EACH, MAX_FILES, is_like
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.model import Checkpoint, Kind

_LEAST_HELD = 2


class Pending(msgspec.Struct, eq=False):
    """An event that is not reported yet, with all that is asked of it later: it outlives the session that saw it."""

    checkpoint: Checkpoint  # as it would be reported: counters are forgotten while it waits
    event: PastEvent
    directory: str = msgspec.field(name="unit")  # what its files share by name
    boot_id: str  # of the host: its processes, and its times, which are CLOCK_MONOTONIC, say nothing in another one
    if_alone: Hypothesis | None = None  # what it is if nothing more comes; None: sure, and reported when it is over
    has_room: bool = True

    def is_of(self, job: str, event: PastEvent) -> bool:
        """Return whether it is of a series with a later one."""
        return self.checkpoint.job == job and not self.event.shapes.isdisjoint(event.shapes)

    def is_like(self, event: PastEvent) -> bool:
        """Return whether it is as large as a later one, or was written over by it, or a part of what was."""
        is_part = bool(self.checkpoint.cuts) and self.event.bytes < event.bytes
        is_same = not self.event.paths.isdisjoint(event.paths)
        return is_part or is_same or is_like(self.event.bytes, event.bytes)

    def is_due(self, now_ns: int, ended: dict[ProcessKey, int]) -> bool:
        """Return whether it is waited for no longer."""
        ends = [ended.get(process) for process in self.event.processes]
        known = [end_ns for end_ns in ends if end_ns is not None]
        writers_ended_ns = max(known) if len(known) == len(ends) else None
        if self.if_alone is None or not self.has_room:
            return True
        is_sent = self.checkpoint.sent is not None
        return now_ns >= deferred_until_ns(self.if_alone, self.event.end_ns, writers_ended_ns, is_sent=is_sent)

    def is_answered(self, past: PastEvents) -> bool:
        """Return whether its processes have received as much since from where it went, or came from."""
        return 2 * past.received_since(self.checkpoint.job, self.event) >= self.event.bytes


class DeferredEvents:
    """Holds a bounded number of events; the oldest goes first."""

    def __init__(self) -> None:
        self.held: list[Pending] = []  # what waits now, the oldest first

    def hold(self, held: Pending) -> None:
        """Keep one until more is known."""
        self.held.append(held)
        kept = [one for one in self.held if one.has_room]
        files = sum(one.checkpoint.files for one in kept)
        while len(kept) > MAX_EACH or (len(kept) > _LEAST_HELD and files > MAX_FILES):
            files -= kept[0].checkpoint.files
            kept.pop(0).has_room = False

    def release(self, job: str, event: PastEvent) -> list[Pending]:
        """Return the earlier ones of a series that was recognised: too little for one is enough for several."""

        def is_such(held: Pending) -> bool:
            return held.checkpoint.kind is Kind.SAVE and held.is_of(job, event) and held.is_like(event)

        again = Signal("recurs", "recurs", "the job wrote the like of it again", strength=2)
        return self._take(is_such, again)

    def fetched(self, job: str, event: PastEvent, past: PastEvents) -> list[Pending]:
        """Return what a job received from where an event went, before that, and no more of it since."""
        return [
            held
            for held in self.held
            if held.checkpoint.kind is Kind.RESTORE and held.is_of(job, event) and not held.is_answered(past)
        ]

    def saved_later(self, job: str, event: PastEvent, past: PastEvents) -> list[Pending]:
        """Return those that a save shows to have been restores from an object store: it is as large, wherever it is."""
        later = Signal("saved-later", "read-again", "its job saved as much later")

        def is_such(held: Pending) -> bool:
            is_fetched = held.checkpoint.kind is Kind.RESTORE and held.checkpoint.job == job
            return is_fetched and held.event.may_be(event) and not held.is_answered(past)

        return self._take(is_such, later)

    def sent_before(self, event: PastEvent, past: PastEvents) -> list[Pending]:
        """Return what runs of the same program sent to where an event came from, if it may be a state by its size.

        That is of one size, and more than once: what was sent once and fetched once meet in size by chance, too.
        """
        return [
            held
            for held in self.held
            if held.checkpoint.kind is Kind.SAVE
            and held.checkpoint.sent is not None
            and held.event.is_of_program(event)
            and past.has_one_size(held.checkpoint.job, held.event)
            and past.is_sent_again(held.checkpoint.job, held.event)
        ]

    def fetched_back(self, event: PastEvent, past: PastEvents) -> list[Pending]:
        """Return the saves that a later run of the same program shows to have been some: it fetched as much."""
        again = Signal("read-again", "read-again", "a later run of the same program fetched as much")
        such = [one for one in self.sent_before(event, past) if event.may_be(one.event)]
        return self._take(lambda held: held in such, again)

    def drop_answered(self, past: PastEvents) -> None:
        """Forget what was sent once, and came back since, or was followed by something of another size."""

        def is_none(held: Pending) -> bool:
            if held.checkpoint.kind is not Kind.SAVE or held.checkpoint.sent is None:
                return False
            is_alone = held.if_alone is Hypothesis.SAVE  # too little for one may be enough for several, of each size
            is_one_of_many = is_alone and not past.has_one_size(held.checkpoint.job, held.event)
            return held.is_answered(past) or is_one_of_many

        self._take(is_none)

    def read_again(self, event: PastEvent) -> list[Pending]:
        """Return those whose files a later run of the same program reads."""
        again = Signal("read-again", "read-again", "a later run of the same program read it")
        return self._take(lambda held: not held.event.paths.isdisjoint(event.paths), again)

    def resumed(self, event: PastEvent) -> list[Pending]:
        """Return the others of the series from the last of which a later run of the same program goes on."""
        again = Signal("resumed", "resumed", "a later run of the same program went on from the last one")
        return self._take(lambda held: held.event.is_of_program(event), again)

    def drop(self, job: str, event: PastEvent) -> None:
        """Forget those of a series that turned out to be data."""
        self._take(lambda held: held.is_of(job, event))

    def expire(self, now_ns: int, ended: dict[ProcessKey, int]) -> list[Pending]:
        """Return those for which nothing more will come, and which are a save or a copy alone."""
        something = (Hypothesis.SAVE, Hypothesis.COPY)
        found = self._take(lambda held: held.if_alone in something and held.is_due(now_ns, ended))
        self._take(lambda held: held.is_due(now_ns, ended))
        return found

    def _take(self, is_such: Callable[[Pending], bool], *reasons: Signal) -> list[Pending]:
        """Remove and return those of which something is the case, with the reasons."""
        found = [one for one in self.held if is_such(one)]
        self.held = [one for one in self.held if one not in found]
        for held in found:
            evidence = (*held.checkpoint.evidence, *evidence_of(reasons))
            held.checkpoint = msgspec.structs.replace(held.checkpoint, evidence=evidence)
        return found
