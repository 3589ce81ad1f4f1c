"""States of an event: what leads from one to the next, and how long it waits in each.

Theory of operation. Transfers that may be one save or one restore are grouped into an event. It is

OPEN        while more of it may follow: files of a step's folder come even after a long barrier, a missing rank later
            still; a marker, or the end of all its writers, shows that it is complete (`CandidateGatherer.next_step`,
            in each round). A close(2) or a sync that still sends it to its server keeps it open (`Detector`).
CLASSIFIED  at once after that, by the decision table (`Recogniser.classify`).
DEFERRED    if too little is known yet: it waits for the next of its series or for a later run that reads it
            (`DeferredEvents`), or, as the read side of a copy, for the written side (`Copies`). A time limit, the end
            of its writers or a full list end the wait: then it is classified on its own.
REPORTED    once it is in the output. A restore and a copy remain so.
UPDATED     each time more is known: when a save was durable and what was deleted for it (`Revisions`), that a copy is
            a placeholder for a file that training was to write (`Placeholders`).
FINAL       when nothing more can change, or it was no checkpoint.

At the end of a recording every wait ends; if another session follows, DEFERRED events continue to wait in it.
The functions here compute how long each state lasts, from the event alone: they read no clock.
"""

from __future__ import annotations

from ckptprof.detect.events.decision_table import Hypothesis
from ckptprof.detect.events.grouping import CERTAIN_GAP_NS, LOOSE_GAP_NS
from ckptprof.detect.tolerances import COMMIT_NS, PATIENCE_NS
from ckptprof.detect.transfers.transfer_tracker import QUIET_NS

# OPEN: how long after its last sign more of an event may follow (from its last write to its classification).
LONGEST_CLOSING_NS = 900_000_000_000  # a hanging server delays the decision no longer
# DEFERRED: from the end of the event.
SERIES_NS = 3_600_000_000_000  # an unknown trainer may need this long from save to save
# REPORTED, UPDATED: from the end of the event.
FOLLOWED_NS = 150_000_000_000  # longer than the sampler queries durability


def patience_ns(*, ended: bool, writes: bool, lacks_ranks: bool, lacks_files: bool, second_copy_ns: int) -> int:
    """Return how long an open event waits after its last sign.

    `ended`: all its writers have exited. `lacks_ranks`, `lacks_files`: it has no marker yet, and ranks or files of its
    step's folder are missing. `second_copy_ns`: how long its framework may take to write a second copy.
    """
    if ended:
        return QUIET_NS
    if lacks_ranks:
        return PATIENCE_NS if writes else CERTAIN_GAP_NS
    return CERTAIN_GAP_NS if lacks_files else max(QUIET_NS, second_copy_ns)


def deferred_until_ns(if_alone: Hypothesis, end_ns: int, writers_ended_ns: int | None, *, is_sent: bool = False) -> int:
    """Return until when an event is deferred; `writers_ended_ns`: when the last of its writers exited.

    `is_sent`: over the network. Its receiver may return it at any time.
    """
    due_ns = end_ns + (PATIENCE_NS if if_alone is Hypothesis.SAVE and not is_sent else SERIES_NS)
    if writers_ended_ns is None or if_alone not in (Hypothesis.SAVE, Hypothesis.COPY):
        return due_ns  # a later run may read it, whatever it is alone
    return min(due_ns, writers_ended_ns + LOOSE_GAP_NS)


def is_final(age_ns: int, *, durable: bool) -> bool:
    """Return True if a reported event, which ended `age_ns` ago, can no longer change."""
    return age_ns > FOLLOWED_NS or (durable and age_ns > COMMIT_NS + LOOSE_GAP_NS)
