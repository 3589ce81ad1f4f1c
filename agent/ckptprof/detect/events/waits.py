"""How long an event waits in each state of its life: functions of what is known of it, which read no clock."""

from __future__ import annotations

from ckptprof.detect.events.decision_table import Hypothesis
from ckptprof.detect.events.grouping import CERTAIN_GAP_NS, LOOSE_GAP_NS
from ckptprof.detect.tolerances import COMMIT_NS, PATIENCE_NS
from ckptprof.detect.transfers.transfers import QUIET_NS

# OPEN: how long after its last sign more of an event may follow (from its last write to judgement).
LONGEST_CLOSING_NS = 900_000_000_000  # a server that hangs holds no judgement up for longer
# DEFERRED: from the end of the event.
SERIES_NS = 3_600_000_000_000  # an unknown trainer may take so long from save to save
# REPORTED, UPDATED: from the end of the event.
FOLLOWED_NS = 150_000_000_000  # longer than the sampler asks what is durable


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


def deferred_until_ns(if_alone: Hypothesis, end_ns: int, writers_ended_ns: int | None, *, is_sent: bool = False) -> int:
    """Return when a deferred event is what it is alone; `writers_ended_ns`: all its writers are over since then.

    `is_sent`: to no file. Whoever got it may give it back any time.
    """
    due_ns = end_ns + (PATIENCE_NS if if_alone is Hypothesis.SAVE and not is_sent else SERIES_NS)
    if writers_ended_ns is None or if_alone not in (Hypothesis.SAVE, Hypothesis.COPY):
        return due_ns  # a later run may read what is nothing alone
    return min(due_ns, writers_ended_ns + LOOSE_GAP_NS)


def is_followed(age_ns: int, *, durable: bool) -> bool:
    """Return whether nothing more is to be learnt of a reported event that ended so long ago."""
    return age_ns > FOLLOWED_NS or (durable and age_ns > COMMIT_NS + LOOSE_GAP_NS)
