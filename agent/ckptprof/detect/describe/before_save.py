"""What the job did from the moment training paused until the first byte of a save."""

from __future__ import annotations

from itertools import takewhile

from ckptprof.detect.describe.draft import Draft
from ckptprof.detect.describe.gpu_idleness import REACH_NS, STILL
from ckptprof.detect.describe.process_measures import members_of
from ckptprof.detect.describe.stall import GATHERED_PART, LEAST_NS
from ckptprof.detect.describe.training_activity import GOES_ON, STEADY_SHARE
from ckptprof.detect.tolerances import AT_ONCE_NS, NEAR_NS, TELLING_BYTES
from ckptprof.detect.world.host.connections import Inflow
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.spans import Span
from ckptprof.detect.world.training_threads import BASELINE_NS
from ckptprof.measures import BeforeMeasure

_UNUSUAL = 2.0  # times its longest pause without a save


def before_of(draft: Draft) -> BeforeMeasure | None:
    """Measure the pause before the first byte; None for a restore, or if no pause was observed."""
    if not draft.candidate.writes:
        return None
    first_ns = start_ns = min(part.first_data_ns for part in draft.candidate.parts)
    stood = [span for process in _ranks(draft) for span in _stood_still(draft, process, first_ns)]
    gathered, gap_ns = _gathered(draft, first_ns), AT_ONCE_NS
    received = [] if gathered is None else [gathered.span]
    for span in sorted((*draft.stall.spans, *stood, *received), reverse=True):
        if span[0] < start_ns and span[1] >= start_ns - gap_ns:
            start_ns, gap_ns = span[0], NEAR_NS
    start_ns = max(start_ns, draft.known.past.blocked_until_ns(draft.candidate.job, first_ns))
    if first_ns - start_ns < LEAST_NS:
        return None
    leading, usage = next(iter(draft.writers)), draft.world.usage
    used = {process: usage.used(process, start_ns, first_ns) for process in draft.writers}
    came = (draft.world.devices.links.received_bytes(start_ns, first_ns), gathered.bytes if gathered else None)
    of_leading, grown = used[leading], [one.grown_bytes for one in used.values() if one is not None]
    return BeforeMeasure(
        held_ns=first_ns - start_ns,
        busy=of_leading.busy if of_leading is not None else None,
        helpers_busy=_helpers_busy(draft, leading, (start_ns, first_ns)) if draft.stall.is_made_by_others else None,
        received_bytes=max((one for one in came if one is not None), default=None),
        grown_bytes=max(0, sum(grown)) if grown else None,
        growing_ns=usage.growing_ns(leading, start_ns, first_ns, TELLING_BYTES),
    )


def _helpers_busy(draft: Draft, writer: ProcessKey, span: Span) -> float | None:
    world = draft.world
    children = [process for process in world.histories if world.jobs.parent(process) == writer]
    used = [usage.busy for process in children if (usage := world.usage.used(process, *span)) is not None]
    return sum(used) if used else None


def _gathered(draft: Draft, first_ns: int) -> Inflow | None:
    """Bytes received right before the first byte by the only writer of several ranks, by its own sockets."""
    jobs, writers = draft.world.jobs, list(draft.writers)
    if len(writers) > 1 or (jobs.ranks(writers[0]) or 1) == 1:
        return None
    since_ns = max(first_ns - REACH_NS, draft.world.trainers.saved_until_ns(first_ns) + AT_ONCE_NS)
    least = draft.candidate.bytes // GATHERED_PART
    return draft.world.devices.connections.came_in(writers[0], since_ns, first_ns, least)


def _ranks(draft: Draft) -> list[ProcessKey]:
    """Select the writers and the other ranks, without launchers and data loaders, which always wait."""
    jobs = draft.world.jobs
    found = []
    for process in members_of(draft):
        rank, parent = jobs.rank(process), jobs.parent(process)
        helps = parent is not None and jobs.rank(parent) == rank
        if process in draft.writers or (rank is not None and not helps):
            found.append(process)
    return found


def _stood_still(draft: Draft, process: ProcessKey, first_ns: int) -> list[Span]:
    """When the main thread of a rank paused right before the first byte, compared with its last minute.

    Also of a rank that waits for the one that writes, since it last ran. Empty if it often pauses for as long.
    """
    book, own = draft.world.trainers, draft.candidate
    saves = book.saves(first_ns - BASELINE_NS, first_ns)
    last = takewhile(
        lambda one: first_ns - one.end_ns <= AT_ONCE_NS, book.recent(process, first_ns - BASELINE_NS, first_ns)
    )
    if all(one.share >= STILL for one in last):
        return []  # it is running
    stretches = [
        one
        for one in book.stretches(process, first_ns - BASELINE_NS, first_ns)
        if one.start_ns < own.start_ns and not any(began <= one.start_ns <= ended for began, ended in saves)
    ]
    shares = sorted(one.share for one in stretches)
    usual = shares[len(shares) * 3 // 4] if shares else 0.0
    if usual < STEADY_SHARE:
        return []
    runs: list[Span] = []
    went_on_ns = 0
    for one in stretches:
        if one.share >= STILL * usual:
            goes_on = process not in draft.writers and one.share >= GOES_ON * usual
            went_on_ns = one.end_ns if goes_on else went_on_ns
            continue
        joins = runs and one.start_ns - runs[-1][1] <= min(NEAR_NS, runs[-1][1] - runs[-1][0])
        if joins and went_on_ns <= runs[-1][1]:
            runs[-1] = runs[-1][0], one.end_ns
        else:
            runs.append((one.start_ns, one.end_ns))
    if not runs or first_ns - runs[-1][1] > AT_ONCE_NS:
        return []
    earlier = (run for run in runs[:-1] if run[1] + AT_ONCE_NS < own.start_ns)
    usual_runs = (run for run in earlier if not book.saved_within(run[0], run[1] + AT_ONCE_NS))
    longest = max((end_ns - start_ns for start_ns, end_ns in usual_runs), default=0)
    return runs[-1:] if runs[-1][1] - runs[-1][0] >= _UNUSUAL * longest else []
