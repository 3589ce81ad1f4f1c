"""Events that are not reported yet: later ones decide what they were."""

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
    """An event that is not reported yet, with all that later decisions need. It outlives its session."""

    checkpoint: Checkpoint  # as it would be reported: counters expire while it waits
    event: PastEvent
    directory: str = msgspec.field(name="unit")  # common to its file names
    boot_id: str  # processes and CLOCK_MONOTONIC times have no meaning in another boot
    if_alone: Hypothesis | None = None  # what it is if nothing more comes; None: sure, and reported at its end
    has_room: bool = True

    def is_of(self, job: str, event: PastEvent) -> bool:
        """Return whether it belongs to the series of a later event."""
        return self.checkpoint.job == job and not self.event.shapes.isdisjoint(event.shapes)

    def is_like(self, event: PastEvent) -> bool:
        """Return whether it is as large as a later event, was overwritten by it, or is a truncated part of such."""
        is_part = bool(self.checkpoint.cuts) and self.event.bytes < event.bytes
        is_same = not self.event.paths.isdisjoint(event.paths)
        return is_part or is_same or is_like(self.event.bytes, event.bytes)

    def is_due(self, now_ns: int, ended: dict[ProcessKey, int]) -> bool:
        """Return whether it waits no longer: its time is over, or its place was taken."""
        ends = [ended.get(process) for process in self.event.processes]
        known = [end_ns for end_ns in ends if end_ns is not None]
        writers_ended_ns = max(known) if len(known) == len(ends) else None
        if self.if_alone is None or not self.has_room:
            return True
        is_sent = self.checkpoint.sent is not None
        return now_ns >= deferred_until_ns(self.if_alone, self.event.end_ns, writers_ended_ns, is_sent=is_sent)

    def is_answered(self, past: PastEvents) -> bool:
        """Return whether its processes have since received as much from its destination or source."""
        return 2 * past.received_since(self.checkpoint.job, self.event) >= self.event.bytes


class DeferredEvents:
    """A bounded number of deferred events; the oldest goes first."""

    def __init__(self) -> None:
        self.held: list[Pending] = []  # the oldest first

    def hold(self, held: Pending) -> None:
        """Defer one until more is known."""
        self.held.append(held)
        kept = [one for one in self.held if one.has_room]
        files = sum(one.checkpoint.files for one in kept)
        while len(kept) > MAX_EACH or (len(kept) > _LEAST_HELD and files > MAX_FILES):
            files -= kept[0].checkpoint.files
            kept.pop(0).has_room = False

    def release(self, job: str, event: PastEvent) -> list[Pending]:
        """Remove and return the earlier events of a recognised series: several suffice where one does not."""

        def is_such(held: Pending) -> bool:
            return held.checkpoint.kind is Kind.SAVE and held.is_of(job, event) and held.is_like(event)

        again = Signal("recurs", "recurs", "the job wrote a similar one again", strength=2)
        return self._take(is_such, again)

    def fetched(self, job: str, event: PastEvent, past: PastEvents) -> list[Pending]:
        """Return what a job received from an event's destination before it, and not again since."""
        return [
            held
            for held in self.held
            if held.checkpoint.kind is Kind.RESTORE and held.is_of(job, event) and not held.is_answered(past)
        ]

    def saved_later(self, job: str, event: PastEvent, past: PastEvents) -> list[Pending]:
        """Remove and return restores from an object store that a later save of that size, in any place, confirms."""
        later = Signal("saved-later", "read-again", "its job later saved as much")

        def is_such(held: Pending) -> bool:
            is_fetched = held.checkpoint.kind is Kind.RESTORE and held.checkpoint.job == job
            return is_fetched and held.event.may_be(event) and not held.is_answered(past)

        return self._take(is_such, later)

    def sent_before(self, event: PastEvent, past: PastEvents) -> list[Pending]:
        """Return what runs of the same program sent to an event's source, if its size suits a state.

        It must have one size and be sent more than once: one event sent and one fetched may agree by chance.
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
        """Remove and return the saves that a later run of the same program confirms: it fetched as much."""
        again = Signal("read-again", "read-again", "a later run of the same program fetched as much")
        such = [one for one in self.sent_before(event, past) if event.may_be(one.event)]
        return self._take(lambda held: held in such, again)

    def drop_answered(self, past: PastEvents) -> None:
        """Drop what was sent once and came back since, or was followed by something of another size."""

        def is_none(held: Pending) -> bool:
            if held.checkpoint.kind is not Kind.SAVE or held.checkpoint.sent is None:
                return False
            is_alone = held.if_alone is Hypothesis.SAVE  # several of different sizes may suffice
            is_one_of_many = is_alone and not past.has_one_size(held.checkpoint.job, held.event)
            return held.is_answered(past) or is_one_of_many

        self._take(is_none)

    def read_again(self, event: PastEvent) -> list[Pending]:
        """Remove and return those whose files a later run of the same program reads."""
        again = Signal("read-again", "read-again", "a later run of the same program read it")
        return self._take(lambda held: not held.event.paths.isdisjoint(event.paths), again)

    def resumed(self, event: PastEvent) -> list[Pending]:
        """Remove and return the rest of a series whose last event a later run of the same program resumes."""
        again = Signal("resumed", "resumed", "a later run of the same program resumed from the last one")
        return self._take(lambda held: held.event.is_of_program(event), again)

    def drop(self, job: str, event: PastEvent) -> None:
        """Drop those of a series that turned out to be data."""
        self._take(lambda held: held.is_of(job, event))

    def expire(self, now_ns: int, ended: dict[ProcessKey, int]) -> list[Pending]:
        """Remove those with nothing more to wait for; return the ones that are a save or a copy alone."""
        something = (Hypothesis.SAVE, Hypothesis.COPY)
        found = self._take(lambda held: held.if_alone in something and held.is_due(now_ns, ended))
        self._take(lambda held: held.is_due(now_ns, ended))
        return found

    def _take(self, is_such: Callable[[Pending], bool], *reasons: Signal) -> list[Pending]:
        """Remove and return the events that match, with the reasons added to their evidence."""
        found = [one for one in self.held if is_such(one)]
        self.held = [one for one in self.held if one not in found]
        for held in found:
            evidence = (*held.checkpoint.evidence, *evidence_of(reasons))
            held.checkpoint = msgspec.structs.replace(held.checkpoint, evidence=evidence)
        return found
