"""The one table of an event's life: its states, what moves it from one to the next, and how long each waits.

Theory of operation. Transfers that may be one save or one restore are grouped into an event. It is

OPEN      while more of it may follow. Files of a step's folder come even after a long barrier, a missing rank later
          still; a marker, or the end of all its writers, says that nothing more comes.
QUIET     when its last sign is as old as that. A close(2) or a sync that still sends it to its server opens it again.
JUDGED    at once after that, by the decision table.
DEFERRED  if too little is known yet: it waits for the next of its series, for a later run that reads it, or, as the
          read side of a copy, for the written side. Time, the end of its writers or a lack of room end the waiting:
          then it is what it was alone.
REPORTED  once users were told of it.
UPDATED   each time more is known of it: when it was durable, what was deleted for it.
FINAL     when nothing more is to be learnt, or it was nothing.

The end of a recording is as if all patience were over; if another session follows, what is DEFERRED waits on in it.
TRANSITIONS has all of this; `after` refuses what it has not.
Waits are functions of what is known of the event; they read no clock. The doing stays where it is: pipeline, gathering,
recognition, deferred, copies, revisions.
"""

from __future__ import annotations

from enum import Enum

from ckptprof.detect.events.decision_table import Hypothesis
from ckptprof.detect.events.grouping import CERTAIN_GAP_NS, LOOSE_GAP_NS
from ckptprof.detect.tolerances import COMMIT_NS, PATIENCE_NS
from ckptprof.detect.transfers.transfers import QUIET_NS


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

# OPEN: how long after its last sign more of an event may follow (from its last write to judgement).
LONGEST_CLOSING_NS = 900_000_000_000  # a server that hangs holds no judgement up for longer
# DEFERRED: from the end of the event.
SERIES_NS = 3_600_000_000_000  # an unknown trainer may take so long from save to save
# REPORTED, UPDATED: from the end of the event.
FOLLOWED_NS = 150_000_000_000  # longer than the sampler asks what is durable


def after(state: State, trigger: Trigger) -> State:
    """Return the state that a trigger moves an event to; raises KeyError where a life has no such turn."""
    return TRANSITIONS[state][trigger]


def patience_ns(*, ended: bool, writes: bool, lacks_ranks: bool, lacks_files: bool, again_ns: int) -> int:
    """Return how long an open event waits after its last sign.

    `ended`: all that wrote it are over. `lacks_ranks`, `lacks_files`: no marker completed it, and ranks, or files of
    its step's folder, are to come. `again_ns`: so long its framework may take to write all of it once more.
    """
    if ended:
        return QUIET_NS
    if lacks_ranks:
        return PATIENCE_NS if writes else CERTAIN_GAP_NS
    return CERTAIN_GAP_NS if lacks_files else max(QUIET_NS, again_ns)


def deferred_until_ns(if_alone: Hypothesis, end_ns: int, writers_ended_ns: int | None) -> int:
    """Return when a deferred event is what it is alone; `writers_ended_ns`: all its writers are over since then."""
    due_ns = end_ns + (PATIENCE_NS if if_alone is Hypothesis.SAVE else SERIES_NS)
    if writers_ended_ns is None or if_alone not in (Hypothesis.SAVE, Hypothesis.COPY):
        return due_ns  # a later run may read what is nothing alone
    return min(due_ns, writers_ended_ns + LOOSE_GAP_NS)


def is_followed(age_ns: int, *, durable: bool) -> bool:
    """Return whether nothing more is to be learnt of a reported event that ended so long ago."""
    return age_ns > FOLLOWED_NS or (durable and age_ns > COMMIT_NS + LOOSE_GAP_NS)
