"""The one table of an event's life: its states, what moves it from one to the next, and who does so.

Theory of operation. Transfers that may be one save or one restore are grouped into an event. It is

OPEN      while more of it may follow: files of a step's folder come even after a long barrier, a missing rank later
          still; a marker, or the end of all its writers, says that nothing more comes. (`Gatherer.turn`, anew in each
          round)
QUIET     when its last sign is as old as that. A close(2) or a sync that still sends it to its server opens it again.
          (`Detector`)
JUDGED    at once after that, by the decision table. (`Recogniser.judge`)
DEFERRED  if too little is known yet: it waits for the next of its series or for a later run that reads it
          (`DeferredEvents`), or, as the read side of a copy, for the written side (`Copies`). Time, the end of its
          writers or a lack of room end the waiting: then it is what it was alone.
REPORTED  once users were told of it. A restore and a copy remain so.
UPDATED   each time more is known of it: when a save was durable and what was deleted for it (`Revisions`), that a copy
          stands where training was to write (`StandIns`).
FINAL     when nothing more is to be learnt, or it was nothing.

An event carries its `Life` from its candidate through all of these. Those of the last events are in
`Recogniser.judged`, so that one look there shows who is DEFERRED.
The end of a recording is as if all patience were over; if another session follows, what is DEFERRED waits on in it.
TRANSITIONS has all of this; a `Life` refuses what it has not. `waits` says how long each state lasts.
"""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """Where an event is in its life."""

    OPEN = "open"
    QUIET = "quiet"
    JUDGED = "judged"
    DEFERRED = "deferred"
    REPORTED = "reported"
    UPDATED = "updated"
    FINAL = "final"


class Trigger(Enum):
    """What moves an event on."""

    SIGN = "more of it was seen"
    PATIENCE_OVER = "its last sign is old enough"
    TOO_MANY_FILES = "it has more files than can be kept"
    ENDLESS = "it goes on and on under names of no framework"
    CLOSING = "a close or a sync still waits for its server"
    SETTLED = "nothing of it is under way"
    RECOGNISED = "the decision table says what it is"
    TURNED_DOWN = "the decision table says that it is no checkpoint, or it is too small"
    IN_DOUBT = "the decision table says that more must be known"
    SERIES_RECURS = "its job wrote the like of it again, and that was a save"
    READ_BACK = "a later run of the same program read it"
    SERIES_RESUMED = "a later run of the same program went on from the last of its series"
    SERIES_IS_DATA = "later ones of its series are data"
    OTHER_SIDE_REPORTED = "the written side of the copy was reported"
    ALONE = "nothing came, or there is no more room to wait: what it is alone is reported"
    NOTHING_ALONE = "nothing came, or there is no more room to wait: alone it is nothing"
    REVISED = "more is known of it"
    FOLLOWED = "it is durable and its clean-up is over, or it was followed long enough, or there is no more room"


_FOLLOWING = {
    Trigger.REVISED: State.UPDATED,
    Trigger.FOLLOWED: State.FINAL,
}
TRANSITIONS: dict[State, dict[Trigger, State]] = {
    State.OPEN: {
        Trigger.SIGN: State.OPEN,
        Trigger.PATIENCE_OVER: State.QUIET,
        Trigger.TOO_MANY_FILES: State.QUIET,
        Trigger.ENDLESS: State.FINAL,
    },
    State.QUIET: {Trigger.CLOSING: State.OPEN, Trigger.SETTLED: State.JUDGED},
    State.JUDGED: {
        Trigger.RECOGNISED: State.REPORTED,
        Trigger.IN_DOUBT: State.DEFERRED,
        Trigger.TURNED_DOWN: State.FINAL,
    },
    State.DEFERRED: {
        Trigger.SERIES_RECURS: State.REPORTED,
        Trigger.READ_BACK: State.REPORTED,
        Trigger.SERIES_RESUMED: State.REPORTED,
        Trigger.ALONE: State.REPORTED,
        Trigger.SERIES_IS_DATA: State.FINAL,
        Trigger.OTHER_SIDE_REPORTED: State.FINAL,
        Trigger.NOTHING_ALONE: State.FINAL,
    },
    State.REPORTED: _FOLLOWING,
    State.UPDATED: _FOLLOWING,
    State.FINAL: {},
}


class Life:
    """The state of one event: all who hold the event hold this, and it moves only as the table has it."""

    __slots__ = ("state",)

    def __init__(self, state: State = State.OPEN) -> None:
        """Begin in a state."""
        self.state = state

    def turn(self, trigger: Trigger) -> State:
        """Move on; return the new state. Raises KeyError where a life has no such turn."""
        self.state = TRANSITIONS[self.state][trigger]
        return self.state
