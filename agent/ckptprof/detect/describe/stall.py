"""Whether training was blocked by a save, and for how long.

The model. One process of a rank trains; threads, children or daemons may write for it (`writer_groups`). Each group
gives one verdict, a mode and the spans in which its trainer was blocked:
- Its main thread wrote everything: mode sync, blocked from the first byte to the last, and for adjacent pauses:
  memory that it built or had built by helpers before, deletions, packing, waits for other ranks.
- Others wrote: sync if the trainer paused for most of that time, async if it continued. Pauses are shown by its GPU,
  by its Python stacks, or by its CPU time against its own rhythm, in this order (`training_activity`). Async saves
  block it only while the state is copied, before the first byte (`state_in_memory`).
- Neither: as the previous save of its series, if most was written by others; else the mode is unknown.

The verdicts are then combined. The mode is the one with most bytes; certain verdicts (from stacks, GPUs or calls)
outvote those from rhythm alone. Ranks wait for each other, so a sync save blocks training for as long as its slowest
rank. In an async save a rank may pause for its own reasons, so the median counts.

Invariant: `stall_ns` is the length of `blocked`, or None where nothing shows it; a limitation then says why.

Example: a loop forks a child that writes for 3 s. The trainer copies its state for 0.2 s, trains for 2.5 s, then
waits for the child before its next save. The first save is async with a stall of 0.2 s, and that wait is `awaited`: it
is counted for the next save, which it delays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ckptprof.detect.describe.training_activity import TrainingActivity
from ckptprof.detect.describe.writer_groups import WriterGroup, group_writers, is_by_main_thread
from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.detection_knowledge import Knowledge
from ckptprof.detect.events.event_history import shape_of
from ckptprof.detect.tolerances import (
    AT_ONCE_NS,
    COMMIT_NS,
    COPY_WITHIN_NS,
    COUNTER_LAG_NS,
    EDGE_TOLERANCE_NS,
    LITTLE_SHARE,
    MOST_SHARE,
    PATIENCE_NS,
    SIGNIFICANT_BYTES,
)
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.spans import Span, clip, length, merged, overlap_ns
from ckptprof.frameworks.program_names import GPU_RUNTIMES
from ckptprof.measures import BeforeMeasure
from ckptprof.model import REUSED_MEMORY, Evidence, Interval, Mode

_GAP_IN_SAVE_NS = 1_500_000_000  # shorter gaps between own files: it serialises, gathers, waits for other ranks
MIN_REPORTED_NS = 20_000_000  # shorter blocking is reported as none
MAX_BLOCKED = 32  # intervals of one checkpoint
_COPY_LIMITATION = (
    "how long training was blocked before the first byte, to copy its state, beyond what its memory shows"
)
_WAIT_LIMITATION = "how long training was blocked: its wait for the save was not observed"
_UNPROFILED_LIMITATION = "how long it prepared the save before the first byte: its stacks were not sampled then"
_AS_PREVIOUS_SAVE = "as in the previous save of its series, without other evidence"
_UNKNOWN_LIMITATION = (
    "how long training was blocked: neither its memory nor its rhythm shows whether its state was copied before"
)


@dataclass(frozen=True)
class Stall:
    """How training was blocked; the evidence has no weight in the recognition."""

    mode: Mode | None
    stall_ns: int | None
    evidence: tuple[Evidence, ...]
    limitations: tuple[str, ...]
    roles: Mapping[ProcessKey, str]  # of its writers: trainer | thread | child | daemon
    still_spans: Sequence[Span]  # pauses of the leading trainer, for the save or not
    blocked: Sequence[Span]  # what `stall_ns` counts
    copy_buffers: Mapping[ProcessKey, int]  # bytes of memory in which each copied its state
    awaited: Span | None  # wait for its end before the next save, counted for that one
    has_awaited: bool = False  # `blocked` includes the wait for the end of the previous save
    deleting_ns: int = 0  # after its last byte, in kernel mode only: deletions
    packing: Sequence[Span] = ()  # waits for children that read what it had saved
    was_built_by_helpers: bool = False  # helpers sent what it wrote by pipes, while it paused

    def including_before_save(
        self, before: BeforeMeasure | None, candidate: Candidate
    ) -> tuple[int | None, Sequence[Span]]:
        """Return (stall_ns, blocked) including the time in which a sync writer received the state from other ranks."""
        if before is None or self.stall_ns is None or self.mode is not Mode.SYNC or len(self.roles) > 1:
            return self.stall_ns, self.blocked
        if (before.received_bytes or 0) < LITTLE_SHARE * candidate.bytes:
            return self.stall_ns, self.blocked  # ranks wait for each other without a save, too
        first_ns = min(part.first_data_ns for part in candidate.parts)
        sent = (first_ns - before.blocked_ns, first_ns)
        return self.stall_ns + before.blocked_ns - length(clip(self.still_spans, [sent])), merged([*self.blocked, sent])


@dataclass(frozen=True)
class _TrainerStall:
    bytes: int
    mode: Mode | None
    stall_ns: int | None
    text: str = ""
    limitations: tuple[str, ...] = ()
    still_spans: Sequence[Span] = ()  # pauses
    blocked: Sequence[Span] = ()  # for the checkpoint
    is_certain: bool = False  # by stacks, GPUs or calls, not by its rhythm alone
    copy_buffer_bytes: int = 0  # of memory in which it copied its state
    awaited: Span | None = None
    deleting_ns: int = 0
    packing: Sequence[Span] = ()
    was_built_by_helpers: bool = False


def classify_stall(candidate: Candidate, known: Knowledge) -> Stall:
    """Classify how training was blocked by a candidate: for ranks, by the one that was blocked longest."""
    groups = group_writers(candidate, known)
    roles = {process: role for group in groups for process, role in group.roles.items()}
    before = known.history.mode_of(candidate.job, _largest(candidate), frozenset(roles.values()))
    verdicts = [_classify_group(group, candidate, known, before) for group in groups]
    copy_buffers = {group.trainer: verdict.copy_buffer_bytes for group, verdict in zip(groups, verdicts, strict=True)}
    certain = [one for one in verdicts if one.mode is not None and one.is_certain]  # ranks save in one way
    least_bytes = LITTLE_SHARE * sum(one.bytes for one in verdicts)  # a rank that wrote almost nothing is weak evidence
    deciding = certain or [one for one in verdicts if one.bytes >= least_bytes]
    bytes_by_mode = {mode: sum(one.bytes for one in deciding if one.mode is mode) for mode in (Mode.SYNC, Mode.ASYNC)}
    mode = max(bytes_by_mode, key=lambda one: bytes_by_mode[one]) if any(bytes_by_mode.values()) else None
    leading = max((one for one in verdicts if one.mode is mode), key=lambda one: one.bytes, default=verdicts[0])
    blocked_verdicts = [
        (one.stall_ns, one.blocked, one.awaited) for one in verdicts if one.stall_ns is not None and one.mode is mode
    ]
    blocked_verdicts.sort(key=lambda one: one[0])
    evidence = (Evidence(name="mode", weight=0.0, text=leading.text),) if leading.text else ()
    with_mode = [one for one in verdicts if mode is None or one.mode is not None]
    limitations = tuple(dict.fromkeys(sentence for one in with_mode for sentence in one.limitations))
    if mode is Mode.ASYNC:  # one rank may pause for its own reasons
        is_known = len(blocked_verdicts) * 2 > len(verdicts)
        blocked_verdicts = blocked_verdicts[(len(blocked_verdicts) - 1) // 2 :][:1] if is_known else []
    stall_ns, blocked, awaited = blocked_verdicts[-1] if blocked_verdicts else (None, (), leading.awaited)
    has_mode = candidate.writes and mode is not None
    waited = known.history.awaited_span(candidate.job, candidate.start_ns) if has_mode else None
    if waited is not None and stall_ns is None and waited[1] - waited[0] < AT_ONCE_NS:
        waited = None  # copying its state may have taken as long
    if waited is not None:
        blocked = merged([*blocked, waited])
        stall_ns = length(blocked)
        limitations = tuple(_COPY_LIMITATION if one == _UNKNOWN_LIMITATION else one for one in limitations)
    return Stall(
        mode, stall_ns, evidence, limitations, roles, leading.still_spans, blocked, copy_buffers, awaited,
        waited is not None, leading.deleting_ns, leading.packing, leading.was_built_by_helpers,
    )  # fmt: skip


def blocked_intervals(spans: Sequence[Span], stall_ns: int | None) -> tuple[Interval, ...]:
    """Intervals in which training was blocked; empty if they do not sum to `stall_ns`, or are too many."""
    found = [span for span in merged(spans) if span[0] < span[1]]
    if length(found) != stall_ns or len(found) > MAX_BLOCKED:
        return ()
    return tuple(Interval(*span) for span in found)


def record_stall(candidate: Candidate, stall: Stall, known: Knowledge) -> None:
    """Record a save that ended, so that later ones do not use its time as a baseline."""
    if candidate.writes:
        known.world.trainers.record_save(candidate.job, candidate.start_ns, candidate.end_ns)
        if stall.awaited is not None or stall.has_awaited:
            known.history.record_awaited(candidate.job, stall.awaited)
        if stall.mode is not None:
            roles = frozenset(stall.roles.values())
            known.history.record_mode(candidate.job, _largest(candidate), roles, stall.mode)
        if stall.mode is Mode.SYNC and stall.stall_ns is not None and len(stall.roles) == 1:
            pace = length(clip(stall.blocked, [(0, candidate.start_ns)])) / candidate.bytes
            known.world.trainers.paused_ns_per_byte.touch(next(iter(stall.roles))).append(pace)
        for process, size in stall.copy_buffers.items():
            known.world.trainers.record_copy_buffer(process, size)


def _classify_group(group: WriterGroup, candidate: Candidate, known: Knowledge, before: Mode | None) -> _TrainerStall:
    info = known.world.jobs.info(group.trainer)
    gpu = info is not None and bool(set(info.runtimes) & GPU_RUNTIMES)
    spans = [*group.main_thread.spans, *group.other_threads.spans, *group.unknown_threads.spans]
    start_ns, end_ns = min(span[0] for span in spans), max(span[1] for span in spans)
    activity = TrainingActivity(known.world, group.trainer, start_ns, end_ns, spins=gpu)
    if not candidate.writes:
        return _classify_restore(group, activity)
    if group.main_thread.bytes and not group.other_threads.spans and not group.unknown_threads.spans:
        return _classify_sole_writer(group, activity, candidate, known)
    size = candidate.bytes
    first_ns = min((part.start_ns for part in candidate.parts if part.bytes * 100 >= size), default=start_ns)
    starts_next = _starts_next_save(group, candidate, known)
    until_ns = candidate.end_ns if starts_next else None
    # the writer and the target are known
    before = before if group.other_threads.bytes * 2 > group.bytes and not candidate.is_sent else None
    # a small file only announces the save
    verdict = _classify_alongside(group, activity, max(first_ns, start_ns), until_ns=until_ns, before=before)
    return replace(verdict, copy_buffer_bytes=activity.memory.copy_buffer_bytes)


def _classify_restore(group: WriterGroup, activity: TrainingActivity) -> _TrainerStall:
    """Classify a restore: training waits for what its own process reads; otherwise as observed."""
    if group.main_thread.spans or group.unknown_threads.spans or "thread" in group.roles.values():
        read = activity.start_ns, activity.end_ns
        fetched = [span for span in group.start_spans if not activity.was_running([span])]
        whole = merged([*fetched, read, *activity.memory.parse_spans(*read, group.bytes)], AT_ONCE_NS)
        return _TrainerStall(group.bytes, None, length(whole), blocked=whole)
    blocked = activity.blocked_spans(group.other_threads.spans)
    return _TrainerStall(group.bytes, None, None if blocked is None else length(blocked), blocked=blocked or ())


def _classify_sole_writer(
    group: WriterGroup, activity: TrainingActivity, candidate: Candidate, known: Knowledge
) -> _TrainerStall:
    """Classify a group whose main thread wrote everything; it also waits for the other ranks."""
    calls = known.world.calls
    until_ns = calls.next_creation_ns(group.trainer, candidate.end_ns, activity.end_ns + _GAP_IN_SAVE_NS)
    acts = calls.naming_spans(group.trainer, activity.start_ns, until_ns)
    spans = merged([*merged(group.main_thread.spans, _GAP_IN_SAVE_NS), *acts], AT_ONCE_NS)
    longest_ns = max(AT_ONCE_NS, length(spans))  # a longer adjacent wait is for something else
    still_spans = [*activity.still_around(spans), *activity.unusual_pauses_between(spans)]
    whole = candidate.start_ns, candidate.end_ns
    helper_built = [  # it received what it then wrote from a pool, by pipes, while it paused
        span
        for span in still_spans
        if span[0] < activity.start_ns
        and known.bytes_outside_files(group.trainer, span, writes=False) >= MOST_SHARE * group.bytes
    ]
    own_still = [span for span in still_spans if span[1] - span[0] - overlap_ns(span, [whole]) <= longest_ns]
    after_ns = max(span[1] for span in spans)
    waits = known.world.threads.child_waits(group.trainer, after_ns, after_ns + PATIENCE_NS)
    paused = merged([*still_spans, *clip(waits, [(after_ns, after_ns + PATIENCE_NS)])])
    packing = [one for one in paused if one[1] > after_ns and _is_packing(one, candidate, known)]
    before = prepared = activity.profile.preparation(activity.start_ns)
    if before is None:
        before = activity.memory.build_spans(activity.start_ns, group.bytes, known.transfers.recent)
    after = _in_kernel_after(group.trainer, activity, known)
    reading = _reading_around(activity, candidate, known)
    blocked = merged([*spans, *own_still, *helper_built, *packing, *before, *after, *reading])
    fed = [known.world.jobs.comm(one) for one in group.roles if one != group.trainer]
    text = f"the training thread passed it to `{fed[0]}`" if fed else "the training thread wrote all of it itself"
    all_still = merged([*spans, *still_spans, *before, *after])
    reuses_buffer = not before and prepared is None and activity.trainers.has_copy_buffer(group.trainer, group.bytes)
    limitations = (REUSED_MEMORY,) if reuses_buffer else ()
    paused_ns = length(clip(blocked, [(0, activity.start_ns)]))
    paces = activity.trainers.paused_ns_per_byte[group.trainer]  # before its last two saves
    missing_ns = (min(paces) if len(paces) > 1 else 0.0) * group.bytes - paused_ns  # if it paused as before
    if prepared is None and missing_ns >= max(EDGE_TOLERANCE_NS, paused_ns / 3):
        missed = limitations or (_UNPROFILED_LIMITATION,)
        return _TrainerStall(group.bytes, Mode.SYNC, None, text, missed, all_still, is_certain=True)
    deleting_ns = length(after) if activity.was_running(after) else 0  # a thread that syncs or closes sleeps
    packing = clip(packing, [(after_ns, max(span[1] for span in blocked))])
    return _TrainerStall(
        group.bytes, Mode.SYNC, length(blocked), text, limitations, all_still, blocked, is_certain=True,
        copy_buffer_bytes=activity.memory.copy_buffer_bytes, deleting_ns=deleting_ns, packing=packing,
        was_built_by_helpers=bool(helper_built),
    )  # fmt: skip


def _is_packing(span: Span, candidate: Candidate, known: Knowledge) -> bool:
    """Whether others of its job packed, sent or checked what it had saved while a rank paused, and nothing else."""
    files, jobs, recent = {part.file for part in candidate.parts}, known.world.jobs, known.transfers.recent
    carried_bytes, connections = 0, known.world.devices.connections
    for process in (one for one in known.world.histories if jobs.job_of(one) == candidate.job):
        if process not in candidate.processes and (read := recent.readings_of(process, files, span)):
            read_bytes = sum(one.size_in_use for one in read)
            sent_bytes = sum(traffic.sent_bytes for _, traffic in connections.traffic_between(*span, [process]))
            reads_on = max(one.data_span[1] for one in read) - span[0] >= MOST_SHARE * length([span])
            is_carried = reads_on or sent_bytes >= MOST_SHARE * read_bytes or jobs.is_tool(process)
            carried_bytes += read_bytes if is_carried else 0
    return carried_bytes >= LITTLE_SHARE * candidate.bytes


def _in_kernel_after(trainer: ProcessKey, activity: TrainingActivity, known: Knowledge) -> list[Span]:
    """Time after its last byte in kernel mode, transferring nothing: it truncates, closes or deletes."""
    since_ns = activity.end_ns
    until_ns = known.world.usage.kernel_time_end_ns(trainer, activity.start_ns, since_ns, since_ns + COMMIT_NS)
    if until_ns is None:
        return []
    intervals = known.world.histories[trainer].between(since_ns + COUNTER_LAG_NS, until_ns)
    later = (one for one in intervals if one.start_ns >= since_ns)  # a late sample counts its last bytes
    transferred = sum(one.written_bytes + one.returned_bytes for one in later)
    return [(since_ns, until_ns)] if transferred < SIGNIFICANT_BYTES else []


def _reading_around(activity: TrainingActivity, candidate: Candidate, known: Knowledge) -> list[Span]:
    """When it read own saves right before the first byte, to average them, or this one right after: to pack it."""
    trainer, first_ns, end_ns = activity.process, activity.start_ns, activity.end_ns
    recent, files = known.transfers.recent, {part.file for part in candidate.parts}
    earlier = [
        one
        for one in recent.transfers_between(trainer, first_ns - COMMIT_NS, first_ns, writes=False)
        if (author := known.history.author_of(one.path)) is not None
        and not author.is_rejected and trainer in author.authors and one.bytes >= MOST_SHARE * one.stored_size
    ]  # fmt: skip
    read = earlier if len({one.file for one in earlier}) > 1 else []
    later = recent.readings_of(trainer, files, (end_ns, end_ns + PATIENCE_NS))
    later = [one for one in later if is_by_main_thread(trainer, one, known.world) is not False]
    times = ((one.first_ns, one.last_ns) for one in (*read, *later))
    (start_ns, last_ns), *_ = (
        one for one in merged([(first_ns, end_ns), *times], AT_ONCE_NS) if one[0] <= first_ns <= one[1]
    )
    return [(start_ns, first_ns), (end_ns, last_ns)]


def _starts_next_save(group: WriterGroup, candidate: Candidate, known: Knowledge) -> bool:
    """Whether its job, in no save reported yet, wrote files of the same names at once, or as its state was copied."""
    ended_ns, until_ns = candidate.end_ns, candidate.end_ns + COPY_WITHIN_NS
    since_ns = ended_ns - EDGE_TOLERANCE_NS
    own_paths = {part.path for part in candidate.parts}
    names = {shape_of(part.file_name) for part in candidate.parts}
    next_ns = min((
        one.before_ns  # under polling it was first observed later
        for process in known.world.job_processes(group.trainer)
        for one in known.transfers.recent.transfers_between(process, since_ns, until_ns, writes=True)
        if since_ns <= one.first_ns
        and one.size_in_use >= SIGNIFICANT_BYTES
        and one.path not in own_paths
        and shape_of(one.file_name) in names
    ), default=None)  # fmt: skip
    if next_ns is None or known.world.trainers.saves_between(group.trainer, since_ns, next_ns):
        return False
    grown = known.world.usage.resident_growth(group.trainer, ended_ns, next_ns) or ()
    return next_ns <= ended_ns + AT_ONCE_NS or sum(one[2] for one in grown) >= MOST_SHARE * candidate.bytes


def _largest(candidate: Candidate) -> str:
    return max(candidate.parts, key=lambda part: part.bytes).path


def _classify_alongside(
    group: WriterGroup, activity: TrainingActivity, first_ns: int, *, until_ns: int | None, before: Mode | None
) -> _TrainerStall:
    """Classify a group by what its trainer did while others wrote, or while the writer is unknown.

    `until_ns`: the end of the save, if its job started to write something else right then. `before`: the mode of the
    previous save of its series, which decides without other evidence: a loop saves in one way.
    """
    roles = [role for role in ("child", "daemon") if role in group.roles.values()]
    writer_text = f"a {roles[0]} process" if roles else "another thread" if group.other_threads.spans else "its process"
    others_spans = merged([*group.other_threads.spans, *group.unknown_threads.spans], _GAP_IN_SAVE_NS)
    # under polling the writer is likely, not certain
    own_spans = [] if activity.was_gpu_busy(group.main_thread.spans) else group.main_thread.spans
    mostly_own = bool(own_spans) and group.main_thread.bytes * 2 > group.bytes
    blocked = activity.blocked_spans(others_spans, by_child=bool(roles))
    # it may be the thread that continued
    hidden = group.unknown_threads.bytes * 2 > group.bytes and not activity.is_observed
    if (
        blocked is None
        and own_spans
        and group.main_thread.bytes >= LITTLE_SHARE * group.bytes
        and activity.trainers.is_known(group.trainer)
    ):
        blocked = others_spans  # a thread that writes a part waits for the others
    is_undecided = (blocked is None or (hidden and not blocked)) and not mostly_own
    if is_undecided and before is not Mode.ASYNC:
        return _classify_by_previous(group, writer_text, activity, before)
    awaited = None
    if blocked and until_ns is not None and not mostly_own:
        blocked, awaited = _split_final_wait(blocked, others_spans, until_ns)
    still = merged([*merged(own_spans, _GAP_IN_SAVE_NS if mostly_own else 0), *(blocked or [])])
    is_certain = activity.is_observed or activity.waited_for_child
    copied: list[Span] | None = []
    if not group.has_staging and not mostly_own:
        copied = activity.copy_spans(first_ns, group.bytes, long_before=bool(roles))
    trained_on = _trained_alongside(activity, others_spans, still, mostly_own=mostly_own)
    again_ns = copied[-1][0] - copied[-2][1] if copied and len(copied) > 1 else 0  # trained, until it had to wait
    trained_on = trained_on or (activity.has_gpu_activity and again_ns > AT_ONCE_NS)
    whole = merged([*own_spans, *others_spans]) if mostly_own else others_spans
    others_did_little = blocked is None or group.other_threads.bytes < LITTLE_SHARE * group.bytes
    if (mostly_own and others_did_little) or (
        length(clip(still, whole)) * 2 >= max(1, length(whole)) and not trained_on
    ):
        ends = [end_ns for end_ns in (until_ns, group.helpers_ended_ns) if end_ns is not None]
        adjacent = activity.still_around(still, min(ends, default=None))
        still = merged([*still, *activity.unusual_pauses_between(still), *adjacent, *group.start_spans])
        if activity.saves_in_background and not mostly_own:
            text = "a library wrote it in the background, and the training thread waited for that: "
            text += activity.observation
            return _TrainerStall(
                group.bytes, Mode.ASYNC, length(still), text, (_COPY_LIMITATION,), still, still, is_certain
            )
        observed = activity.observation or "it wrote a part itself"
        text = f"{writer_text} wrote, and the training thread waited: {observed}"
        return _TrainerStall(group.bytes, Mode.SYNC, length(still), text, (), still, still, is_certain)
    observed = _AS_PREVIOUS_SAVE if is_undecided else activity.observation
    text = f"{writer_text} wrote, while the training thread went on: {observed}"
    if copied is None or (is_undecided and not copied):
        return _TrainerStall(
            group.bytes, Mode.ASYNC, None, text, (_UNKNOWN_LIMITATION,), is_certain=is_certain, awaited=awaited
        )
    if copied and group.start_spans and not activity.has_gpu_activity:
        born_ns = min(span[0] for span in group.start_spans)  # it is blocked until the child is forked
        copied = merged([*copied, *([(copied[-1][1], born_ns)] if copied[-1][1] < born_ns else [])])
    if copied:
        copy_text = "its GPU was idle" if activity.has_gpu_activity else "its state was copied in memory"
        text += f"; {copy_text} for {length(copied) / 1e9:.2f} s before"
    still = merged([*still, *activity.still_around(others_spans), *copied])
    blocked = still if length(still) >= MIN_REPORTED_NS else []
    return _TrainerStall(
        group.bytes, Mode.ASYNC, length(blocked), text, (_COPY_LIMITATION,), still, blocked, is_certain, awaited=awaited
    )


def _classify_by_previous(
    group: WriterGroup, writer_text: str, activity: TrainingActivity, before: Mode | None
) -> _TrainerStall:
    """Classify a group without evidence on its trainer: sync as `before`, or unknown."""
    if before is Mode.SYNC:
        text = f"{writer_text} wrote, and the training thread waited: {_AS_PREVIOUS_SAVE}"
        return _TrainerStall(group.bytes, Mode.SYNC, None, text, (_WAIT_LIMITATION,))
    sentence = f"whether training went on while {writer_text} wrote: {activity.unknown_reason}"
    return _TrainerStall(group.bytes, None, None, limitations=(sentence,))


def _trained_alongside(
    activity: TrainingActivity, others_spans: list[Span], still: list[Span], *, mostly_own: bool
) -> bool:
    """Whether samples show it training while others wrote; blocked, it waits from their first byte to their last."""
    if not others_spans or not still:
        return False
    start_ns, end_ns = others_spans[0][0], others_spans[-1][1]
    free_span = (still[-1][1], end_ns) if mostly_own else (start_ns, still[0][0])
    return free_span[1] - free_span[0] >= AT_ONCE_NS and activity.was_training(*free_span)


def _split_final_wait(blocked: list[Span], written: list[Span], until_ns: int) -> tuple[list[Span], Span | None]:
    """Split off the final wait for the end of the save, if it trained before that: (blocked, final wait)."""
    *earlier, last = blocked
    trained_ns = length(clip(written, [(written[0][0], last[0])])) - length(earlier)
    if last[1] < until_ns - EDGE_TOLERANCE_NS or trained_ns < AT_ONCE_NS:
        return blocked, None
    return earlier, last
