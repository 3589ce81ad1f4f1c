"""What the job did from the moment training paused until the first byte of a save."""

from __future__ import annotations

from itertools import takewhile

from ckptprof.detect.describe.draft import Draft
from ckptprof.detect.describe.gpu_idleness import STILL_SHARE
from ckptprof.detect.describe.process_measures import list_job_processes
from ckptprof.detect.describe.stall import MIN_REPORTED_NS
from ckptprof.detect.describe.training_activity import RUNNING_SHARE, STEADY_SHARE
from ckptprof.detect.tolerances import AT_ONCE_NS, NEARBY_NS, SIGNIFICANT_BYTES
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.spans import Span
from ckptprof.detect.world.training_threads import BASELINE_NS
from ckptprof.measures import BeforeMeasure

_LONGER_THAN_USUAL = 2.0  # times its longest pause without a save


def measure_before_save(draft: Draft) -> BeforeMeasure | None:
    """Measure the pause before the first byte; None for a restore, or if no pause was observed."""
    if not draft.candidate.writes:
        return None
    first_ns = start_ns = min(part.first_data_ns for part in draft.candidate.parts)
    still_spans = [span for process in _waiting_ranks(draft) for span in _still_before(draft, process, first_ns)]
    gap_ns = AT_ONCE_NS
    for span in sorted((*draft.stall.still_spans, *still_spans), reverse=True):
        if span[0] < start_ns and span[1] >= start_ns - gap_ns:
            start_ns, gap_ns = span[0], NEARBY_NS
    start_ns = max(start_ns, draft.known.history.blocked_until_ns(draft.candidate.job, first_ns))
    if first_ns - start_ns < MIN_REPORTED_NS:
        return None
    leading, usage = next(iter(draft.writers)), draft.world.usage
    used = {process: usage.totals(process, start_ns, first_ns) for process in draft.writers}
    leading_usage, grown_bytes = used[leading], [one.grown_bytes for one in used.values() if one is not None]
    return BeforeMeasure(
        blocked_ns=first_ns - start_ns,
        busy=leading_usage.busy if leading_usage is not None else None,
        runnable_share=draft.world.trainers.running_share(leading, start_ns, first_ns),
        helpers_busy=_helpers_busy(draft, leading, (start_ns, first_ns)) if draft.stall.was_built_by_helpers else None,
        received_bytes=draft.world.devices.links.received_bytes(start_ns, first_ns),
        grown_bytes=max(0, sum(grown_bytes)) if grown_bytes else None,
        growing_ns=usage.growing_ns(leading, start_ns, first_ns, SIGNIFICANT_BYTES),
    )


def _helpers_busy(draft: Draft, writer: ProcessKey, span: Span) -> float | None:
    children = [process for process in draft.world.histories if draft.world.jobs.parent(process) == writer]
    used = [usage.busy for process in children if (usage := draft.world.usage.totals(process, *span)) is not None]
    return sum(used) if used else None


def _waiting_ranks(draft: Draft) -> list[ProcessKey]:
    """Select the ranks, without launchers, data loaders and writers that serve them, which always wait."""
    jobs = draft.world.jobs
    found = []
    for process in list_job_processes(draft):
        rank, parent = jobs.rank(process), jobs.parent(process)
        is_helper = parent is not None and jobs.rank(parent) == rank
        if draft.stall.roles.get(process) in ("trainer", "thread") or (rank is not None and not is_helper):
            found.append(process)
    return found


def _still_before(draft: Draft, process: ProcessKey, first_ns: int) -> list[Span]:
    """When the main thread of a rank paused right before the first byte, compared with its last minute.

    Also of a rank that waits for the one that writes, since it last ran. Empty if it often pauses for as long.
    """
    trainers, candidate = draft.world.trainers, draft.candidate
    saves = trainers.saves_between(process, first_ns - BASELINE_NS, first_ns)
    newest_stretches = takewhile(
        lambda one: first_ns - one.end_ns <= AT_ONCE_NS,
        trainers.recent_stretches(process, first_ns - BASELINE_NS, first_ns),
    )
    if all(one.share >= STILL_SHARE for one in newest_stretches):
        return []  # it is running
    stretches = [
        one
        for one in trainers.stretches(process, first_ns - BASELINE_NS, first_ns)
        if one.start_ns < candidate.start_ns
        and not any(save_start_ns <= one.start_ns <= save_end_ns for save_start_ns, save_end_ns in saves)
    ]
    shares = sorted(one.share for one in stretches)
    usual = shares[len(shares) * 3 // 4] if shares else 0.0
    if usual < STEADY_SHARE:
        return []
    runs: list[Span] = []
    resumed_ns = 0
    for one in stretches:
        if one.share >= STILL_SHARE * usual:
            resumes = process not in draft.writers and one.share >= RUNNING_SHARE * usual
            resumed_ns = one.end_ns if resumes else resumed_ns
            continue
        continues = runs and one.start_ns - runs[-1][1] <= min(NEARBY_NS, runs[-1][1] - runs[-1][0])
        if continues and resumed_ns <= runs[-1][1]:
            runs[-1] = runs[-1][0], one.end_ns
        else:
            runs.append((one.start_ns, one.end_ns))
    if not runs or first_ns - runs[-1][1] > AT_ONCE_NS:
        return []
    earlier = (run for run in runs[:-1] if run[1] + AT_ONCE_NS < candidate.start_ns)
    usual_runs = (run for run in earlier if not trainers.saves_between(process, run[0], run[1] + AT_ONCE_NS))
    longest = max((end_ns - start_ns for start_ns, end_ns in usual_runs), default=0)
    return runs[-1:] if runs[-1][1] - runs[-1][0] >= _LONGER_THAN_USUAL * longest else []
