"""Which process trains, and which of its threads, children and daemons transfer the bytes for it.

The model. Each process that wrote (or read) a part is assigned to a trainer: itself, or the topmost active ancestor of
the same job and rank that may train. A group is one trainer with three sums of bytes and times: those of its main
thread; those of its other threads and of other processes; and those of an unknown thread of the trainer's process.
`stall` classifies groups by these sums.

How a thread is identified, in this order: by traced calls (`Transfer.threads`); by the counters of the main thread,
which must have grown by half of the part; for a mapping, by the calls in which samples found the main thread. Counters
of a thread cover all of its files. So a part that continued long after those already assigned to the main thread, while
the counters of the main thread stood still, is not its own.

Invariant: each part counts in exactly one group. The times of a staging file count for the thread that wrote it, its
bytes do not: they are those of the final file.

Example: rank 0 writes `config.json` and starts a child that writes 2 GB of weights. Both belong to one group, with rank
0 as trainer: the config counts for its main thread, the weights for others, and the time from the birth of the child to
its first byte is recorded, since training may wait for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ckptprof.detect.describe.gpu_idleness import BASELINE_REACH_NS
from ckptprof.detect.describe.writers import by_process
from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.detection_knowledge import Knowledge
from ckptprof.detect.events.event_context import EventContext
from ckptprof.detect.events.grouping import CERTAIN_GAP_NS
from ckptprof.detect.tolerances import AT_ONCE_NS, CONCURRENT_NS, COUNTER_LAG_NS, LITTLE_SHARE
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.processes import key_of
from ckptprof.detect.world.spans import LatestEnds, Span, length
from ckptprof.detect.world.stack_states import main_frames
from ckptprof.detect.world.training_threads import TrainingThreads, wakes_by_itself
from ckptprof.detect.world.world import World
from ckptprof.frameworks.program_names import LAUNCHERS, NUMERIC_RUNTIMES, TRAINING_RUNTIMES

_AT_FILES = ("sync", "close", "fault")  # calls that transfer data are counted by themselves
_RUNNING = ("running", "unknown")


@dataclass(slots=True)
class ThreadTransfers:
    """Bytes transferred by some threads, and when."""

    bytes: int = 0
    spans: list[Span] = field(default_factory=list)

    def add(self, transferred: int, *spans: Span) -> None:
        """Add bytes, and when they were transferred."""
        self.bytes += transferred
        self.spans += spans


@dataclass(slots=True)
class WriterGroup:
    """One process that trains, and the transfers of its bytes."""

    trainer: ProcessKey
    main_thread: ThreadTransfers = field(default_factory=ThreadTransfers)  # by its main thread
    other_threads: ThreadTransfers = field(default_factory=ThreadTransfers)  # by other threads and processes
    unknown_threads: ThreadTransfers = field(default_factory=ThreadTransfers)  # by its own process, thread unknown
    roles: dict[ProcessKey, str] = field(default_factory=dict)
    has_staging: bool = False  # its main thread wrote staging files
    helpers_ended_ns: int | None = None  # exit of its last helper process; None: one is alive, or there is none
    # from the birth of a child to its first byte; while one fetched what is then read
    start_spans: list[Span] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """All bytes of the group."""
        return self.main_thread.bytes + self.other_threads.bytes + self.unknown_threads.bytes

    def transfers_by(self, is_own: bool | None) -> ThreadTransfers:  # noqa: FBT001 # a result, not an option
        """Select the transfers of its main thread (True), of others (False), or of an unknown thread (None)."""
        return self.unknown_threads if is_own is None else self.main_thread if is_own else self.other_threads


def group_writers(candidate: Candidate, known: Knowledge) -> list[WriterGroup]:
    """Group the parts of a candidate by the process that trains."""
    trainers = known.world.trainers
    groups: dict[ProcessKey, WriterGroup] = {}
    before_ns = candidate.start_ns - CONCURRENT_NS  # a helper reads what it is to write, and writes it at once
    read = known.history.events(candidate.job, writes=False)
    restored = {process for one in read if one.end_ns < before_ns and not one.is_rejected for process in one.processes}
    makers = dict(zip(candidate.processes, EventContext(candidate, known).producers, strict=True))
    for process, parts in by_process(candidate.parts).items():
        trainer = process if process in restored else _find_trainer(makers[process], candidate, known.world)
        group = groups.setdefault(trainer, WriterGroup(trainer))
        if process == trainer:
            group.roles[process] = _add_own_transfers(group, parts, known)
            continue
        first_ns = trainers.first_ns(process)
        is_daemon = first_ns is not None and first_ns < candidate.start_ns - CERTAIN_GAP_NS  # it existed before
        group.roles[process] = "daemon" if is_daemon else "child"
        _add_staging_files(group, parts, known)
        for part in parts:
            is_fed = makers[process] == trainer and part.staging_file is None  # through a pipe
            by_main = is_fed and is_by_main_thread(trainer, part, known.world) is not False
            group.transfers_by(by_main).add(part.bytes, _transfer_span(part))
        start_ns = min(_transfer_span(part)[0] for part in parts)
        born_ns = known.world.born_ns(process)
        if not is_daemon and 0 < start_ns - born_ns <= AT_ONCE_NS:
            group.start_spans.append((born_ns, start_ns))
    for group in groups.values():
        ends = [known.world.ended.get(process) for process in group.roles if process != group.trainer]
        group.helpers_ended_ns = max(filter(None, ends), default=None) if all(ends) else None
    return list(groups.values())


def _transfer_span(part: Transfer) -> Span:
    staged = part.staging_file
    return (part.start_ns if staged is None else min(part.end_ns, max(part.start_ns, staged.end_ns)), part.end_ns)


def _find_trainer(process: ProcessKey, candidate: Candidate, world: World) -> ProcessKey:
    """Find the process that trains: itself, or its topmost active ancestor of the same job and rank."""
    jobs, found = world.jobs, []
    rank, job = jobs.rank(process), jobs.job_of(process)
    own, forker = jobs.info(process), jobs.rank_process(process)
    for info in jobs.ancestors(own) if own is not None else ():
        current = key_of(info)
        may_train = set(info.runtimes) & (TRAINING_RUNTIMES | NUMERIC_RUNTIMES) or jobs.rank(current) is not None
        same = jobs.rank(current) == rank and jobs.job_of(current) == job
        if (may_train or current == forker != process) and same and info.program not in LAUNCHERS:
            found.append(current)
    if len(found) > 1:
        end_ns, trainers = candidate.end_ns, world.trainers
        found = [one for one in found if _is_active(one, candidate.start_ns - BASELINE_REACH_NS, trainers)] or found
        shares = {} if found[-1] == process else _shares_of_children(found[-1], candidate.start_ns, world)
        worker = max(shares, key=lambda one: shares[one] * (2 if one in found else 1), default=process)
        if shares and _is_launcher(found[-1], worker, candidate, world):
            return worker
        if found[0] == process and _is_active(process, end_ns, trainers):
            found = [one for one in found if one == process or not _is_launcher(one, process, candidate, world)]
    return (found or [process])[-1]


def _shares_of_children(process: ProcessKey, until_ns: int, world: World) -> dict[ProcessKey, float]:
    """Measure for what share of the time its children ran; empty if it ran itself since it started them."""
    children = [one for one in world.histories if world.jobs.parent(one) == process and world.born_ns(one) < until_ns]
    born = sorted(max(world.born_ns(one), until_ns - BASELINE_REACH_NS) for one in children)
    if not born or _is_active(process, (born[-1] + until_ns) // 2, world.trainers, until_ns) is not False:
        return {}
    shares = {one: world.trainers.running_share(one, born[0], until_ns) or 0.0 for one in (process, *children)}
    return shares if shares.pop(process) < LITTLE_SHARE * max(shares.values()) else {}


def _is_active(process: ProcessKey, since_ns: int, trainers: TrainingThreads, until_ns: int = 0) -> bool | None:
    """Whether it ran in some seconds; None: too little of these was observed."""
    stretches = trainers.stretches(process, since_ns, until_ns or since_ns + BASELINE_REACH_NS - 1)
    if sum(one.end_ns - one.start_ns for one in stretches) < CONCURRENT_NS:
        return None
    return wakes_by_itself(stretches) or any(one.share > 0.5 for one in stretches)


def _is_launcher(process: ProcessKey, worker: ProcessKey, candidate: Candidate, world: World) -> bool:
    """Whether it waited for a worker that went on after this or an earlier save: it was active only as it started."""
    trainers, since_ns = world.trainers, candidate.end_ns
    waits = world.threads.child_waits(process, candidate.start_ns, since_ns)
    if waits and candidate.writes and (saved_ns := trainers.last_save_end_ns(worker, since_ns)):
        return saved_ns > world.born_ns(worker)  # else one is born for each save
    until_ns = max(since_ns + 3 * CONCURRENT_NS, waits[-1][1]) if waits else since_ns + BASELINE_REACH_NS
    ran_ns = sum(one.share * length([one[:2]]) for one in trainers.stretches(worker, since_ns, until_ns))
    stacks = trainers.stacks(worker, since_ns, until_ns)
    goes_on = ran_ns >= 2 * CONCURRENT_NS if waits else any(map(main_frames, stacks))  # a helper exits sooner
    return goes_on and _is_active(process, since_ns, trainers, until_ns) is False


def _add_own_transfers(group: WriterGroup, parts: list[Transfer], known: Knowledge) -> str:
    """Add what a trainer transferred itself, by its main thread or another; return its role."""
    by_others = group.other_threads.bytes
    _add_staging_files(group, parts, known)
    main_spans = LatestEnds()  # of parts assigned to the main thread by its counters
    for part in sorted((part for part in parts if not part.threads), key=lambda one: length([_transfer_span(one)])):
        is_own = is_by_main_thread(group.trainer, part, known.world, main_spans)
        if is_own:
            main_spans.add(_transfer_span(part))
        group.transfers_by(is_own).add(part.bytes, _transfer_span(part))
    for part in (part for part in parts if part.threads):
        main = [session for session in part.threads if session.tid == session.pid]
        by_main = sum(session.bytes for session in main)
        total = by_main if len(main) == len(part.threads) else sum(session.bytes for session in part.threads)
        if by_main * 2 >= total:
            group.main_thread.add(by_main, _transfer_span(part))
            group.other_threads.add(total - by_main)
        else:
            group.main_thread.add(by_main, *((session.first_ns, session.last_ns) for session in main))
            group.other_threads.add(total - by_main, _transfer_span(part))
    # the trace drops most of a flood of files
    if group.other_threads.bytes == by_others and group.main_thread.bytes >= LITTLE_SHARE * group.unknown_threads.bytes:
        group.main_thread.add(group.unknown_threads.bytes, *group.unknown_threads.spans)
        group.unknown_threads = ThreadTransfers()
    return "trainer" if group.main_thread.bytes + group.unknown_threads.bytes >= group.other_threads.bytes else "thread"


def _add_staging_files(group: WriterGroup, parts: list[Transfer], known: Knowledge) -> None:
    """Add when the trainer wrote staging files, whose bytes count for the final file, or waited for a fetch."""
    staged = [(part, part.staging_file) for part in parts if part.staging_file is not None]
    group.start_spans += [(staging.start_ns, staging.end_ns) for part, staging in staged if not part.writes]
    for staging in (staging for _, staging in staged if staging.process == group.trainer):
        is_own = is_by_main_thread(group.trainer, staging, known.world)
        group.has_staging = group.has_staging or bool(is_own)
        group.transfers_by(is_own).add(0, _transfer_span(staging))


def is_by_main_thread(
    trainer: ProcessKey, part: Transfer, world: World, main_spans: LatestEnds | None = None
) -> bool | None:
    """Whether the main thread of a trainer transferred most of a part, or one of its sessions; None if unknown.

    It may also have transferred other parts, in `main_spans`, at the same time: its counters cover both.
    """
    if part.process == trainer and part.threads:
        return any(session.tid == trainer[0] for session in part.threads)
    start_ns, end_ns = _transfer_span(part)
    if part.staging_file is None:
        span = start_ns - COUNTER_LAG_NS, end_ns + COUNTER_LAG_NS
    else:  # only samples within the copy: adjacent ones count other staging files
        intervals = world.histories[trainer].between(start_ns, end_ns)
        inside = [one for one in intervals if one.start_ns >= start_ns and one.end_ns <= end_ns]
        span = (inside[0].start_ns, inside[-1].end_ns) if inside else (start_ns, end_ns)
    transferred = world.trainers.transferred_bytes(trainer, *span)
    if transferred is None:  # threads are only counted in processes with a machine-learning library
        return True if world.usage.is_single_threaded(trainer, *span) else None
    direction = 0 if part.writes else 1
    if main_spans is not None and _outlasts_main_thread(trainer, part, main_spans, world):
        return False
    if transferred[direction] * 2 >= part.bytes:
        return True
    intervals = world.histories[trainer].between(*span)
    by_all = sum(one.written_bytes if part.writes else one.returned_bytes for one in intervals)
    if intervals and 2 * by_all >= part.bytes:  # a sample may come late: compare both counters over the same samples
        same_samples = world.trainers.transferred_bytes(trainer, intervals[0].start_ns, intervals[-1].end_ns)
        return same_samples is not None and same_samples[direction] * 2 >= by_all
    return _is_mapping_by_main_thread(trainer, part, world)  # no counter of its process grew: it is a mapping


def _outlasts_main_thread(trainer: ProcessKey, part: Transfer, main_spans: LatestEnds, world: World) -> bool:
    """Whether the part continued long after those in `main_spans`, while the main thread transferred nothing."""
    start_ns, end_ns = _transfer_span(part)
    until_ns = main_spans.before(end_ns)
    if not start_ns < until_ns <= end_ns - AT_ONCE_NS:
        return False
    transferred = world.trainers.transferred_bytes(trainer, until_ns + COUNTER_LAG_NS, end_ns)
    expected = part.bytes * (end_ns - until_ns - COUNTER_LAG_NS) / (end_ns - start_ns)
    return transferred is not None and transferred[0 if part.writes else 1] * 2 < expected


def _is_mapping_by_main_thread(trainer: ProcessKey, part: Transfer, world: World) -> bool | None:
    """Whether the main thread used the mapping: most samples at files, or running as the only thread.

    None: it ran, for an unknown purpose. A thread that slept elsewhere touched nothing.
    """
    threads = world.threads
    usage = threads.usage(trainer, trainer[0], part.start_ns, part.end_ns)
    if usage is None or not usage.samples:
        return None
    at_files = sum(usage.samples_by_state.get(word, 0) for word in _AT_FILES)
    if 2 * at_files > usage.samples:
        return True
    if 2 * (at_files + sum(usage.samples_by_state.get(word, 0) for word in _RUNNING)) <= usage.samples:
        return False
    return True if len(threads.threads(trainer, part.start_ns, part.end_ns)) == 1 else None
