"""Events that are not reported yet: later ones decide what they were."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ckptprof.detect.events.decision import evidence_of
from ckptprof.detect.events.decision_table import Hypothesis
from ckptprof.detect.events.event_history import EventHistory, HistoryEvent
from ckptprof.detect.events.lifecycle import deferred_until_ns
from ckptprof.detect.events.signal_values import Signal
from ckptprof.detect.tolerances import MAX_FILES, MAX_PER_ITEM, is_similar_size
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.model import Checkpoint, Kind

_MIN_DEFERRED = 2


class PendingEvent(msgspec.Struct, eq=False):
    """An event that is not reported yet, with all that later decisions need. It outlives its session."""

    checkpoint: Checkpoint  # as it would be reported: counters expire while it waits
    event: HistoryEvent
    directory: str = msgspec.field(name="unit")  # common to its file names
    boot_id: str  # processes and CLOCK_MONOTONIC times have no meaning in another boot
    if_alone: Hypothesis | None = None  # what it is if nothing more comes; None: sure, and reported at its end
    has_room: bool = True

    def is_same_series(self, job: str, event: HistoryEvent) -> bool:
        """Return True if it belongs to the series of a later event."""
        return self.checkpoint.job == job and not self.event.shapes.isdisjoint(event.shapes)

    def is_similar_to(self, event: HistoryEvent) -> bool:
        """Return True if it is as large as a later event, was overwritten by it, or is a truncated part of such."""
        is_part = bool(self.checkpoint.cuts) and self.event.bytes < event.bytes
        is_same = not self.event.paths.isdisjoint(event.paths)
        return is_part or is_same or is_similar_size(self.event.bytes, event.bytes)

    def has_expired(self, now_ns: int, ended: dict[ProcessKey, int]) -> bool:
        """Return True after its time limit, or if a later event made the wait pointless."""
        ends = [ended.get(process) for process in self.event.processes]
        known = [end_ns for end_ns in ends if end_ns is not None]
        writers_ended_ns = max(known) if len(known) == len(ends) else None
        if self.if_alone is None or not self.has_room:
            return True
        is_sent = self.checkpoint.sent is not None
        return now_ns >= deferred_until_ns(self.if_alone, self.event.end_ns, writers_ended_ns, is_sent=is_sent)

    def was_returned(self, history: EventHistory) -> bool:
        """Return True if its processes have since received as much from its destination or source."""
        return 2 * history.received_since(self.checkpoint.job, self.event) >= self.event.bytes


class DeferredEvents:
    """A bounded number of deferred events; the oldest goes first."""

    def __init__(self) -> None:
        self.events: list[PendingEvent] = []  # the oldest first

    def defer(self, event: PendingEvent) -> None:
        """Defer one until more is known."""
        self.events.append(event)
        with_capacity = [one for one in self.events if one.has_room]
        files = sum(one.checkpoint.files for one in with_capacity)
        while len(with_capacity) > MAX_PER_ITEM or (len(with_capacity) > _MIN_DEFERRED and files > MAX_FILES):
            files -= with_capacity[0].checkpoint.files
            with_capacity.pop(0).has_room = False

    def take_recurring(self, job: str, event: HistoryEvent) -> list[PendingEvent]:
        """Remove and return the earlier events of a recognised series: several suffice where one does not."""

        def is_such(held: PendingEvent) -> bool:
            return held.checkpoint.kind is Kind.SAVE and held.is_same_series(job, event) and held.is_similar_to(event)

        again = Signal("recurs", "recurs", "the job wrote a similar one again", strength=2)
        return self._remove(is_such, again)

    def fetched_by(self, job: str, event: HistoryEvent, history: EventHistory) -> list[PendingEvent]:
        """Return what a job received from an event's destination before it, and not again since."""
        return [
            deferred
            for deferred in self.events
            if deferred.checkpoint.kind is Kind.RESTORE
            and deferred.is_same_series(job, event)
            and not deferred.was_returned(history)
        ]

    def take_saved_later(self, job: str, event: HistoryEvent, history: EventHistory) -> list[PendingEvent]:
        """Remove and return restores from an object store that a later save of that size, in any place, confirms."""
        later = Signal("saved-later", "read-again", "its job later saved as much")

        def is_such(held: PendingEvent) -> bool:
            is_fetched = held.checkpoint.kind is Kind.RESTORE and held.checkpoint.job == job
            return is_fetched and held.event.may_be_same_state(event) and not held.was_returned(history)

        return self._remove(is_such, later)

    def sent_before(self, event: HistoryEvent, history: EventHistory) -> list[PendingEvent]:
        """Return what runs of the same program sent to an event's source, if its size suits a state.

        It must have one size and be sent more than once: one event sent and one fetched may agree by chance.
        """
        return [
            deferred
            for deferred in self.events
            if deferred.checkpoint.kind is Kind.SAVE
            and deferred.checkpoint.sent is not None
            and deferred.event.is_same_program(event)
            and history.has_constant_size(deferred.checkpoint.job, deferred.event)
            and history.was_sent_again(deferred.checkpoint.job, deferred.event)
        ]

    def take_fetched_again(self, event: HistoryEvent, history: EventHistory) -> list[PendingEvent]:
        """Remove and return the saves that a later run of the same program confirms: it fetched as much."""
        again = Signal("read-again", "read-again", "a later run of the same program fetched as much")
        matching = [one for one in self.sent_before(event, history) if event.may_be_same_state(one.event)]
        return self._remove(lambda held: held in matching, again)

    def drop_returned(self, history: EventHistory) -> None:
        """Drop sent events that came back since, or were followed by one of another size."""

        def is_none(held: PendingEvent) -> bool:
            if held.checkpoint.kind is not Kind.SAVE or held.checkpoint.sent is None:
                return False
            is_alone = held.if_alone is Hypothesis.SAVE  # several of different sizes may suffice
            is_one_of_many = is_alone and not history.has_constant_size(held.checkpoint.job, held.event)
            return held.was_returned(history) or is_one_of_many

        self._remove(is_none)

    def take_reread(self, event: HistoryEvent) -> list[PendingEvent]:
        """Remove and return those whose files a later run of the same program reads."""
        again = Signal("read-again", "read-again", "a later run of the same program read it")
        return self._remove(lambda held: not held.event.paths.isdisjoint(event.paths), again)

    def take_resumed(self, event: HistoryEvent) -> list[PendingEvent]:
        """Remove and return the rest of a series whose last event a later run of the same program resumes."""
        again = Signal("resumed", "resumed", "a later run of the same program resumed from the last one")
        return self._remove(lambda held: held.event.is_same_program(event), again)

    def drop(self, job: str, event: HistoryEvent) -> None:
        """Drop those of a series that turned out to be data."""
        self._remove(lambda held: held.is_same_series(job, event))

    def take_expired(self, now_ns: int, ended: dict[ProcessKey, int]) -> list[PendingEvent]:
        """Remove those with nothing more to wait for; return the ones that are a save or a copy alone."""
        reportable = (Hypothesis.SAVE, Hypothesis.COPY)
        found = self._remove(lambda held: held.if_alone in reportable and held.has_expired(now_ns, ended))
        self._remove(lambda held: held.has_expired(now_ns, ended))
        return found

    def _remove(self, matches: Callable[[PendingEvent], bool], *reasons: Signal) -> list[PendingEvent]:
        """Remove and return the events that match, with the reasons added to their evidence."""
        found = [one for one in self.events if matches(one)]
        self.events = [one for one in self.events if one not in found]
        for deferred in found:
            evidence = (*deferred.checkpoint.evidence, *evidence_of(reasons))
            deferred.checkpoint = msgspec.structs.replace(deferred.checkpoint, evidence=evidence)
        return found
