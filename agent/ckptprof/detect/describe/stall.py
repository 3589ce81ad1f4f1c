"""Whether training was blocked by a save, and for how long.

The model. One process of a rank trains; threads, children or daemons may write for it (`writer_groups`). Each group
gives one verdict, a mode and the spans in which its trainer was blocked:
- Its main thread wrote everything: mode sync, blocked from the first byte to the last, and for adjacent pauses:
  memory that it built or had built by helpers before, deletions, packing, waits for other ranks.
- Others wrote: sync if the trainer paused for most of that time, async if it went on. Pauses are shown by its GPU,
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
from itertools import pairwise

from ckptprof.detect.describe.training_activity import TrainingActivity
from ckptprof.detect.describe.writer_groups import WriterGroup, writer_groups
from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.knowledge import Knowledge
from ckptprof.detect.events.past_events import shape_of
from ckptprof.detect.tolerances import AT_ONCE_NS, CALLS_NS, COMMIT_NS, EDGE_NS, LITTLE_SHARE, MOST_SHARE, TELLING_BYTES
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.spans import Span, cut, length, merged, overlap_ns
from ckptprof.frameworks.programs import GPU_RUNTIMES
from ckptprof.measures import BeforeMeasure
from ckptprof.model import Evidence, Interval, Mode

_BETWEEN_NS = 1_500_000_000  # shorter gaps between own files: it serialises, gathers, waits for other ranks
GATHERED_PART = 4  # at least this part (1/4) of a save is sent to its writer
LEAST_NS = 20_000_000  # shorter blocking is reported as none
MAX_BLOCKED = 32  # intervals of one checkpoint
_UNSEEN = "how long training was blocked before the first byte, to copy its state, beyond what its memory shows"
_REUSED = "how long it built its state in memory left from an earlier save, which looks like training"
_WAITED = "how long training was blocked: its wait for the save was not observed"
_AS_BEFORE = "as in the previous save of its series, without other evidence"
_UNTOLD = "how long training was blocked: neither its memory nor its rhythm shows whether its state was copied before"


@dataclass(frozen=True)
class Stall:
    """How training was blocked; the evidence has no weight in the recognition."""

    mode: Mode | None
    stall_ns: int | None
    evidence: tuple[Evidence, ...]
    blind: tuple[str, ...]
    roles: Mapping[ProcessKey, str]  # of its writers: trainer | thread | child | daemon
    spans: Sequence[Span]  # pauses of the leading trainer, for the save or not
    blocked: Sequence[Span]  # what `stall_ns` counts
    rooms: Mapping[ProcessKey, int]  # bytes of memory in which each copied its state
    awaited: Span | None  # wait for its end before the next save, counted for that one
    has_awaited: bool = False  # `blocked` includes the wait for the end of the previous save
    deleting_ns: int = 0  # after its last byte, in kernel mode only: deletions
    packing: Sequence[Span] = ()  # waits for children that read what it had saved
    is_made_by_others: bool = False  # helpers sent what it wrote by pipes, while it paused

    def with_before(self, before: BeforeMeasure | None, candidate: Candidate) -> tuple[int | None, Sequence[Span]]:
        """Return (stall_ns, blocked) including the time in which a sync writer received the state from other ranks."""
        if before is None or self.stall_ns is None or self.mode is not Mode.SYNC or len(self.roles) > 1:
            return self.stall_ns, self.blocked
        if (before.received_bytes or 0) * GATHERED_PART < candidate.bytes:
            return self.stall_ns, self.blocked  # ranks wait for each other without a save, too
        first_ns = min(part.first_data_ns for part in candidate.parts)
        sent = (first_ns - before.held_ns, first_ns)
        return self.stall_ns + before.held_ns - length(cut(self.spans, [sent])), merged([*self.blocked, sent])


@dataclass(frozen=True)
class _Verdict:
    bytes: int
    mode: Mode | None
    stall_ns: int | None
    text: str = ""
    blind: tuple[str, ...] = ()
    spans: Sequence[Span] = ()  # pauses
    blocked: Sequence[Span] = ()  # for the checkpoint
    certain: bool = False  # by stacks, GPUs or calls, not by its rhythm alone
    room_bytes: int = 0  # of memory in which it copied its state
    awaited: Span | None = None
    deleting_ns: int = 0
    packing: Sequence[Span] = ()
    is_made_by_others: bool = False


def stall_of(candidate: Candidate, known: Knowledge) -> Stall:
    """Classify how training was blocked by a candidate: for ranks, by the one that was blocked longest."""
    groups = writer_groups(candidate, known)
    roles = {process: role for group in groups for process, role in group.roles.items()}
    before = known.past.mode(candidate.job, _largest(candidate), frozenset(roles.values()))
    verdicts = [_judge(group, candidate, known, before) for group in groups]
    rooms = {group.trainer: verdict.room_bytes for group, verdict in zip(groups, verdicts, strict=True)}
    certain = [one for one in verdicts if one.mode is not None and one.certain]  # ranks save in one way
    least = LITTLE_SHARE * sum(one.bytes for one in verdicts)  # a rank that wrote almost nothing is weak evidence
    deciding = certain or [one for one in verdicts if one.bytes >= least]
    told = {mode: sum(one.bytes for one in deciding if one.mode is mode) for mode in (Mode.SYNC, Mode.ASYNC)}
    mode = max(told, key=lambda one: told[one]) if any(told.values()) else None
    leading = max((one for one in verdicts if one.mode is mode), key=lambda one: one.bytes, default=verdicts[0])
    held = [
        (one.stall_ns, one.blocked, one.awaited) for one in verdicts if one.stall_ns is not None and one.mode is mode
    ]
    held.sort(key=lambda one: one[0])
    evidence = (Evidence(name="mode", weight=0.0, text=leading.text),) if leading.text else ()
    telling = [one for one in verdicts if mode is None or one.mode is not None]
    blind = tuple(dict.fromkeys(sentence for one in telling for sentence in one.blind))
    if mode is Mode.ASYNC:  # one rank may pause for its own reasons
        held = held[(len(held) - 1) // 2 :][:1] if len(held) * 2 > len(verdicts) else []
    stall_ns, blocked, awaited = held[-1] if held else (None, (), leading.awaited)
    waited = known.past.awaited(candidate.job, candidate.start_ns) if candidate.writes and mode is not None else None
    if waited is not None and stall_ns is None and waited[1] - waited[0] < AT_ONCE_NS:
        waited = None  # copying its state may have taken as long
    if waited is not None:
        blocked = merged([*blocked, waited])
        stall_ns = length(blocked)
        blind = tuple(_UNSEEN if sentence == _UNTOLD else sentence for sentence in blind)
    return Stall(
        mode, stall_ns, evidence, blind, roles, leading.spans, blocked, rooms, awaited, waited is not None,
        leading.deleting_ns, leading.packing, leading.is_made_by_others,
    )  # fmt: skip


def intervals(spans: Sequence[Span], stall_ns: int | None) -> tuple[Interval, ...]:
    """Intervals in which training was blocked; empty if they do not sum to `stall_ns`, or are too many."""
    found = [span for span in merged(spans) if span[0] < span[1]]
    if length(found) != stall_ns or len(found) > MAX_BLOCKED:
        return ()
    return tuple(Interval(*span) for span in found)


def note_stall(candidate: Candidate, stall: Stall, known: Knowledge) -> None:
    """Record a save that ended, so that later ones do not use its time as a baseline."""
    if candidate.writes:
        known.world.trainers.note_save(candidate.start_ns, candidate.end_ns)
        if stall.awaited is not None or stall.has_awaited:
            known.past.note_awaited(candidate.job, stall.awaited)
        if stall.mode is not None:
            roles = frozenset(stall.roles.values())
            known.past.note_mode(candidate.job, _largest(candidate), roles, stall.mode)
        for process, size in stall.rooms.items():
            known.world.trainers.note_room(process, size)


def _judge(group: WriterGroup, candidate: Candidate, known: Knowledge, before: Mode | None) -> _Verdict:
    info = known.world.jobs.info(group.trainer)
    gpu = info is not None and bool(set(info.runtimes) & GPU_RUNTIMES)
    spans = [*group.own.spans, *group.others.spans, *group.unknown.spans]
    start_ns, end_ns = min(span[0] for span in spans), max(span[1] for span in spans)
    activity = TrainingActivity(known.world, group.trainer, start_ns, end_ns, spins=gpu)
    if not candidate.writes:
        return _restore(group, activity)
    if group.own.bytes and not group.others.spans and not group.unknown.spans:
        return _alone(group, activity, candidate, known)
    size = candidate.bytes
    first_ns = min((part.start_ns for part in candidate.parts if part.bytes * 100 >= size), default=start_ns)
    leads = _leads_to_next(group, candidate, known)
    until_ns = candidate.end_ns if leads else None
    is_known = group.others.bytes * 2 > group.bytes and not candidate.is_sent  # the writer and the target are known
    before = before if is_known else None
    # a small file only announces the save
    verdict = _beside(group, activity, max(first_ns, start_ns), until_ns=until_ns, before=before)
    return replace(verdict, room_bytes=activity.memory.room_bytes)


def _restore(group: WriterGroup, activity: TrainingActivity) -> _Verdict:
    """Classify a restore: training waits for what its own process reads; otherwise as observed."""
    if group.own.spans or group.unknown.spans or "thread" in group.roles.values():
        read = activity.start_ns, activity.end_ns
        whole = merged([read, *activity.memory.parsed(*read, group.bytes)])
        return _Verdict(group.bytes, None, length(whole), blocked=whole)
    blocked = activity.blocked(group.others.spans)
    return _Verdict(group.bytes, None, None if blocked is None else length(blocked), blocked=blocked or ())


def _alone(group: WriterGroup, activity: TrainingActivity, candidate: Candidate, known: Knowledge) -> _Verdict:
    """Classify a group whose main thread wrote everything; it also waits for the other ranks."""
    calls = known.world.calls
    until_ns = calls.creates_ns(group.trainer, candidate.end_ns, activity.end_ns + _BETWEEN_NS)
    acts = calls.of_names(group.trainer, activity.start_ns, until_ns)
    spans = merged([*merged(group.own.spans, _BETWEEN_NS), *_writing_between(group, known), *acts], AT_ONCE_NS)
    most_ns = max(AT_ONCE_NS, length(spans))  # a longer adjacent wait is for something else
    standing = [*activity.standing_beside(spans), *activity.standing_between(spans)]
    whole = candidate.start_ns, candidate.end_ns
    made = [span for span in standing if _is_made_by_others(span, group, known)]
    mine = [span for span in standing if span in made or span[1] - span[0] - overlap_ns(span, [whole]) <= most_ns]
    after_ns = max(span[1] for span in spans)
    packing = [one for one in standing if one[1] > after_ns and _is_packed(one, group.trainer, candidate, known)]
    before = activity.memory.built(activity.start_ns, group.bytes)
    after = _in_kernel_after(group.trainer, activity, known)
    blocked = merged([*spans, *mine, *packing, *before, *after, *_read_for_it(group.trainer, activity.start_ns, known)])
    text = "the training thread wrote all of it itself"
    still = merged([*spans, *standing, *before, *after])
    blind = (_REUSED,) if activity.memory.has_room(group.bytes) else ()
    verdict = _Verdict(group.bytes, Mode.SYNC, length(blocked), text, blind, still, blocked, certain=True)
    deleting_ns = length(after) if activity.ran(after) else 0  # a thread that syncs or closes sleeps
    packing = cut(packing, [(after_ns, max(span[1] for span in blocked))])
    return replace(
        verdict,
        room_bytes=activity.memory.room_bytes,
        deleting_ns=deleting_ns,
        packing=packing,
        is_made_by_others=bool(made),
    )


def _is_made_by_others(span: Span, group: WriterGroup, known: Knowledge) -> bool:
    """Whether it received what it then wrote by read(2) from no file, while it paused: from a pool, by pipes."""
    start_ns, end_ns = span
    if start_ns >= min(one[0] for one in group.own.spans):
        return False
    came = sum(one.returned_bytes for one in known.world.histories[group.trainer].between(start_ns, end_ns))
    read = sum(one.used_size for one in known.transfers.recent.moved(group.trainer, start_ns, end_ns, writes=False))
    return came - read >= MOST_SHARE * group.bytes


def _is_packed(span: Span, trainer: ProcessKey, candidate: Candidate, known: Knowledge) -> bool:
    """Whether children of the process read what it had saved while it paused: they pack or send it."""
    files, jobs, recent = {part.file for part in candidate.parts}, known.world.jobs, known.transfers.recent
    read = (
        one.used_size
        for process in known.world.histories
        if jobs.parent(process) == trainer
        for one in recent.moved(process, *span, writes=False)
        if one.file in files
    )
    return sum(read) >= LITTLE_SHARE * candidate.bytes


def _writing_between(group: WriterGroup, known: Knowledge) -> list[Span]:
    """Gaps between its files in which its thread went on writing: some of thousands of files are not found."""
    spans = merged(group.own.spans, _BETWEEN_NS)
    found = []
    for before, after in pairwise(spans):
        gap = before[1], after[0]
        moved = known.world.trainers.moved(group.trainer, *gap)
        if moved is not None and moved[0] * length(spans) >= LITTLE_SHARE * group.bytes * (gap[1] - gap[0]):
            found.append(gap)
    return found


def _in_kernel_after(trainer: ProcessKey, activity: TrainingActivity, known: Knowledge) -> list[Span]:
    """Time after its last byte in kernel mode, transferring nothing: it truncates, closes or deletes."""
    since_ns = activity.end_ns
    until_ns = known.world.usage.in_kernel_until(trainer, activity.start_ns, since_ns, since_ns + COMMIT_NS)
    if until_ns is None:
        return []
    called = known.world.histories[trainer].between(since_ns + CALLS_NS, until_ns)
    later = (one for one in called if one.start_ns >= since_ns)  # a late sample counts its last bytes
    moved = sum(one.written_bytes + one.returned_bytes for one in later)
    return [(since_ns, until_ns)] if moved < TELLING_BYTES else []


def _read_for_it(trainer: ProcessKey, first_ns: int, known: Knowledge) -> list[Span]:
    """When it read several of its own saves in full before its first byte: it averages or merges them."""
    begin_ns, files = first_ns, set()
    read = known.transfers.recent.moved(trainer, first_ns - COMMIT_NS, first_ns, writes=False)
    for one in sorted((one for one in read if one.start_ns), key=lambda one: one.end_ns, reverse=True):
        if begin_ns - one.end_ns > AT_ONCE_NS:
            break
        author = known.past.author(one.path)
        is_saved = author is not None and not author.is_nothing and trainer in author.processes
        if is_saved and one.bytes >= MOST_SHARE * one.stored_size:
            begin_ns = min(begin_ns, one.start_ns)
            files.add(one.file)
    return [(begin_ns, first_ns)] if len(files) > 1 else []


def _leads_to_next(group: WriterGroup, candidate: Candidate, known: Knowledge) -> bool:
    """Whether its job started to write files of the same names as soon as it ended, in a save not yet reported."""
    since_ns, until_ns = candidate.end_ns - EDGE_NS, candidate.end_ns + AT_ONCE_NS
    if known.world.trainers.saved_within(since_ns, until_ns):
        return False
    own = {part.path for part in candidate.parts}
    names = {shape_of(part.file_name) for part in candidate.parts}
    return any(
        since_ns <= one.first_ns
        and one.before_ns <= until_ns  # under polling it was first observed later
        and one.used_size >= TELLING_BYTES
        and one.path not in own
        and shape_of(one.file_name) in names
        for process in known.world.relatives(group.trainer)
        for one in known.transfers.recent.moved(process, since_ns, until_ns, writes=True)
    )


def _largest(candidate: Candidate) -> str:
    return max(candidate.parts, key=lambda part: part.bytes).path


def _beside(
    group: WriterGroup, activity: TrainingActivity, first_ns: int, *, until_ns: int | None, before: Mode | None
) -> _Verdict:
    """Classify a group by what its trainer did while others wrote, or while the writer is unknown.

    `until_ns`: the end of the save, if its job started to write something else right then. `before`: the mode of the
    previous save of its series, which decides without other evidence: a loop saves in one way.
    """
    by = [role for role in ("child", "daemon") if role in group.roles.values()]
    who = f"a {by[0]} process" if by else "another thread" if group.others.spans else "its process"
    foreign = merged([*group.others.spans, *group.unknown.spans], _BETWEEN_NS)
    own = (
        [] if activity.went_on(group.own.spans) else group.own.spans
    )  # under polling the writer is likely, not certain
    mostly_own = bool(own) and group.own.bytes * 2 > group.bytes
    blocked = activity.blocked(foreign, by_child=bool(by))
    hidden = group.unknown.bytes * 2 > group.bytes and not activity.was_looked_at  # it may be the thread that went on
    if blocked is None and own and group.own.bytes >= LITTLE_SHARE * group.bytes and activity.book.knows(group.trainer):
        blocked = foreign  # a thread that writes a part waits for the others
    untold = (blocked is None or (hidden and not blocked)) and not mostly_own
    if untold and before is not Mode.ASYNC:
        return _untold(group, who, activity, before)
    awaited = None
    if blocked and until_ns is not None and not mostly_own:
        blocked, awaited = _awaiting(blocked, foreign, until_ns)
    still = merged([*merged(own, _BETWEEN_NS if mostly_own else 0), *(blocked or [])])
    sure = activity.was_looked_at or activity.waited
    staged = [] if group.has_staged or mostly_own else activity.staged(first_ns, group.bytes, long_before=bool(by))
    went_on = _went_on(activity, foreign, still, mostly_own=mostly_own)
    went_on = went_on or (activity.tells_by_gpu and _went_on_between(staged or ()))
    whole = merged([*own, *foreign]) if mostly_own else foreign
    little = mostly_own and (blocked is None or group.others.bytes < LITTLE_SHARE * group.bytes)  # was left to others
    if little or (length(cut(still, whole)) * 2 >= max(1, length(whole)) and not went_on):
        ends = [end_ns for end_ns in (until_ns, group.gone_ns) if end_ns is not None]
        beside = activity.standing_beside(still, min(ends, default=None))
        still = merged([*still, *activity.standing_between(still), *beside, *group.started])
        if activity.background and not mostly_own:
            text = f"a library wrote it in the background, and the training thread waited for that: {activity.seen}"
            return _Verdict(group.bytes, Mode.ASYNC, length(still), text, (_UNSEEN,), still, still, sure)
        text = f"{who} wrote, and the training thread waited: {activity.seen or 'it wrote a part itself'}"
        return _Verdict(group.bytes, Mode.SYNC, length(still), text, (), still, still, sure)
    text = f"{who} wrote, while the training thread went on: {_AS_BEFORE if untold else activity.seen}"
    if staged is None or (untold and not staged):
        return _Verdict(group.bytes, Mode.ASYNC, None, text, (_UNTOLD,), certain=sure, awaited=awaited)
    if staged and group.started and not activity.tells_by_gpu:
        born_ns = min(span[0] for span in group.started)  # it is blocked until the child is forked
        staged = merged([*staged, *([(staged[-1][1], born_ns)] if staged[-1][1] < born_ns else [])])
    if staged:
        what = "its GPU was idle" if activity.tells_by_gpu else "its state was copied in memory"
        text += f"; {what} for {length(staged) / 1e9:.2f} s before"
    still = merged([*still, *activity.standing_beside(foreign), *staged])
    blocked = still if length(still) >= LEAST_NS else []
    return _Verdict(group.bytes, Mode.ASYNC, length(blocked), text, (_UNSEEN,), still, blocked, sure, awaited=awaited)


def _untold(group: WriterGroup, who: str, activity: TrainingActivity, before: Mode | None) -> _Verdict:
    """Classify a group without evidence on its trainer: sync as `before`, or unknown."""
    if before is Mode.SYNC:
        text = f"{who} wrote, and the training thread waited: {_AS_BEFORE}"
        return _Verdict(group.bytes, Mode.SYNC, None, text, (_WAITED,))
    sentence = f"whether training went on while {who} wrote: {activity.reason}"
    return _Verdict(group.bytes, None, None, blind=(sentence,))


def _went_on(activity: TrainingActivity, foreign: list[Span], still: list[Span], *, mostly_own: bool) -> bool:
    """Whether samples show it training while others wrote; blocked, it waits from their first byte to their last."""
    if not foreign or not still:
        return False
    start_ns, end_ns = foreign[0][0], foreign[-1][1]
    free = (still[-1][1], end_ns) if mostly_own else (start_ns, still[0][0])
    return free[1] - free[0] >= AT_ONCE_NS and activity.was_training(*free)


def _awaiting(blocked: list[Span], written: list[Span], until_ns: int) -> tuple[list[Span], Span | None]:
    """Split off the final wait for the end of the save, if it trained before that: (blocked, final wait)."""
    *earlier, last = blocked
    went_on_ns = length(cut(written, [(written[0][0], last[0])])) - length(earlier)
    if last[1] < until_ns - EDGE_NS or went_on_ns < AT_ONCE_NS:
        return blocked, None
    return earlier, last


def _went_on_between(copied: Sequence[Span]) -> bool:
    """Whether it trained on after its state was copied, until it had to wait for the end of this save."""
    return len(copied) > 1 and copied[-1][0] - copied[-2][1] > AT_ONCE_NS
