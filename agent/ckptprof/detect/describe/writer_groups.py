"""Which process trains, and which of its threads, children and daemons transfer the bytes for it.

The model. Each process that wrote (or read) a part is assigned to a trainer: itself, or the topmost active ancestor of
the same job and rank that may train. A group is one trainer with three sums of bytes and times: those of its main
thread; those of its other threads and of other processes; and those of an unknown thread of the trainer's process.
`stall` classifies groups by these sums.

How a thread is identified, in this order: by traced calls (`Transfer.threads`); by the counters of the main thread,
which must have grown by half of the part; for a mapping, by the calls in which samples found the main thread. Counters
of a thread cover all of its files. So a part that went on long after what is already assigned to the main thread, while
the counters of the main thread stood still, is not its own.

Invariant: each part counts in exactly one group. The times of a staging file count for the thread that wrote it, its
bytes do not: they are those of the final file.

Example: rank 0 writes `config.json` and starts a child that writes 2 GB of weights. Both belong to one group, with rank
0 as trainer: the config counts for its main thread, the weights for others, and the time from the birth of the child to
its first byte is recorded, since training may wait for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ckptprof.detect.describe.gpu_idleness import REACH_NS
from ckptprof.detect.describe.writers import by_process
from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.grouping import CERTAIN_GAP_NS
from ckptprof.detect.events.knowledge import Knowledge
from ckptprof.detect.tolerances import AT_ONCE_NS, BESIDE_NS, CALLS_NS, LITTLE_SHARE
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.processes import key_of
from ckptprof.detect.world.spans import LastEnds, Span
from ckptprof.detect.world.training_threads import TrainingThreads, wakes
from ckptprof.detect.world.world import World
from ckptprof.frameworks.programs import LAUNCHERS, NUMERIC_RUNTIMES, TRAINING_RUNTIMES

_AT_FILES = ("sync", "close", "fault")  # calls that move data are counted
_RUNNING = ("running", "unknown")


@dataclass(slots=True)
class Moved:
    """Bytes transferred by some threads, and when."""

    bytes: int = 0
    spans: list[Span] = field(default_factory=list)

    def add(self, other: Moved) -> None:
        """Add the transfers of others."""
        self.take(other.bytes, *other.spans)

    def take(self, moved: int, *spans: Span) -> None:
        """Add bytes, and when they were transferred."""
        self.bytes += moved
        self.spans += spans


@dataclass(slots=True)
class WriterGroup:
    """One process that trains, and the transfers of its bytes."""

    trainer: ProcessKey
    own: Moved = field(default_factory=Moved)  # by its main thread
    others: Moved = field(default_factory=Moved)  # by other threads and processes
    unknown: Moved = field(default_factory=Moved)  # by its own process, thread unknown
    roles: dict[ProcessKey, str] = field(default_factory=dict)
    has_staged: bool = False  # its main thread wrote staging files
    gone_ns: int | None = None  # exit of its last helper process; None: one is alive, or there is none
    started: list[Span] = field(default_factory=list)  # from the birth of a child to its first byte

    @property
    def bytes(self) -> int:
        """All bytes of the group."""
        return self.own.bytes + self.others.bytes + self.unknown.bytes

    def by(self, is_own: bool | None) -> Moved:  # noqa: FBT001 # a result, not an option
        """Select the transfers of its main thread (True), of others (False), or of an unknown thread (None)."""
        return self.unknown if is_own is None else self.own if is_own else self.others


def writer_groups(candidate: Candidate, known: Knowledge) -> list[WriterGroup]:
    """Group the parts of a candidate by the process that trains."""
    trainers = known.world.trainers
    groups: dict[ProcessKey, WriterGroup] = {}
    before_ns = candidate.start_ns - BESIDE_NS  # a helper reads what it is to write, and writes it at once
    read = (one for one in known.past.events(candidate.job, writes=False) if one.end_ns < before_ns)
    restored = {process for one in read if not one.is_nothing for process in one.processes}
    for process, parts in by_process(candidate.parts).items():
        trainer = process if process in restored else _trainer_of(process, candidate.start_ns, known.world)
        group = groups.setdefault(trainer, WriterGroup(trainer))
        if process == trainer:
            group.roles[process] = _add_own(group, parts, known)
            continue
        first_ns = trainers.first_ns(process)
        is_daemon = first_ns is not None and first_ns < candidate.start_ns - CERTAIN_GAP_NS  # it existed before
        group.roles[process] = "daemon" if is_daemon else "child"
        for part in parts:
            group.others.add(_whole(part))
        begin_ns = min(_span(part)[0] for part in parts)
        born_ns = known.world.born_ns(process)
        if not is_daemon and 0 < begin_ns - born_ns <= AT_ONCE_NS:
            group.started.append((born_ns, begin_ns))
    for group in groups.values():
        ends = [known.world.ended.get(process) for process in group.roles if process != group.trainer]
        group.gone_ns = max((end_ns for end_ns in ends if end_ns is not None), default=None) if all(ends) else None
    return list(groups.values())


def _whole(part: Transfer) -> Moved:
    return Moved(part.bytes, [_span(part)])


def _span(part: Transfer) -> Span:
    staged = part.staged
    return (part.start_ns if staged is None else min(part.end_ns, max(part.start_ns, staged.end_ns)), part.end_ns)


def _trainer_of(process: ProcessKey, at_ns: int, world: World) -> ProcessKey:
    """Find the process that trains: itself, or its topmost active ancestor of the same job and rank."""
    jobs, found = world.jobs, []
    rank, job = jobs.rank(process), jobs.job_of(process)
    own = jobs.info(process)
    for info in jobs.ancestors(own) if own is not None else ():
        current = key_of(info)
        runs = set(info.runtimes) & (TRAINING_RUNTIMES | NUMERIC_RUNTIMES) or jobs.rank(current) is not None
        same = jobs.rank(current) == rank and jobs.job_of(current) == job
        if runs and same and info.program not in LAUNCHERS:
            found.append(current)
    if len(found) > 1:
        found = [one for one in found if _was_active(one, at_ns, world.trainers)] or found
    return (found or [process])[-1]


def _was_active(process: ProcessKey, at_ns: int, trainers: TrainingThreads) -> bool:
    stretches = trainers.stretches(process, at_ns - REACH_NS, at_ns - 1)
    seen_ns = sum(one.end_ns - one.start_ns for one in stretches)
    if seen_ns < 1_000_000_000:
        return False
    return wakes(stretches) or any(one.share > 0.5 for one in stretches)


def _add_own(group: WriterGroup, parts: list[Transfer], known: Knowledge) -> str:
    """Add what a trainer transferred itself, by its main thread or another; return its role."""
    by_others = group.others.bytes
    stages = [part.staged for part in parts if part.staged is not None]
    for stage in stages:  # its bytes count for the final file
        threads = {session.tid for session in stage.threads}
        is_own = group.trainer[0] in threads if threads else _is_own(group.trainer, stage, known.world, LastEnds())
        group.has_staged = group.has_staged or bool(is_own)
        group.by(is_own).add(Moved(0, _whole(stage).spans))
    mine = LastEnds()  # of parts assigned to the main thread by its counters
    for part in sorted((part for part in parts if not part.threads), key=_lasts_ns):
        is_own = _is_own(group.trainer, part, known.world, mine)
        if is_own:
            mine.add(_span(part))
        group.by(is_own).add(_whole(part))
    for part in (part for part in parts if part.threads):
        main = [session for session in part.threads if session.tid == session.pid]
        by_main = sum(session.bytes for session in main)
        total = by_main if len(main) == len(part.threads) else sum(session.bytes for session in part.threads)
        if by_main * 2 >= total:
            group.own.take(by_main, _span(part))
            group.others.take(total - by_main)
        else:
            group.own.take(by_main, *((session.first_ns, session.last_ns) for session in main))
            group.others.take(total - by_main, _span(part))
    # the trace drops most of a flood of files
    if group.others.bytes == by_others and group.own.bytes >= LITTLE_SHARE * group.unknown.bytes:
        group.own.add(group.unknown)
        group.unknown = Moved()
    return "trainer" if group.own.bytes + group.unknown.bytes >= group.others.bytes else "thread"


def _lasts_ns(part: Transfer) -> int:
    start_ns, end_ns = _span(part)
    return end_ns - start_ns


def _is_own(trainer: ProcessKey, part: Transfer, world: World, mine: LastEnds) -> bool | None:
    """Whether the main thread transferred most of a part whose operations were not counted; None if unknown.

    It may also have transferred `mine` at the same time: its counters cover both.
    """
    start_ns, end_ns = _span(part)
    if part.staged is None:
        span = start_ns - CALLS_NS, end_ns + CALLS_NS
    else:  # only samples within the copy: adjacent ones count other staging files
        called = world.histories[trainer].between(start_ns, end_ns)
        inside = [one for one in called if one.start_ns >= start_ns and one.end_ns <= end_ns]
        span = (inside[0].start_ns, inside[-1].end_ns) if inside else (start_ns, end_ns)
    moved = world.trainers.moved(trainer, *span)
    if moved is None:  # threads are only counted in processes with a machine-learning library
        return True if world.usage.is_one_thread(trainer, *span) else None
    which = 0 if part.writes else 1
    if _outlasts(trainer, part, mine, world):
        return False
    if moved[which] * 2 >= part.bytes:
        return True
    called = world.histories[trainer].between(*span)
    by_all = sum(one.written_bytes if part.writes else one.returned_bytes for one in called)
    if called and 2 * by_all >= part.bytes:  # a sample may come late: compare both counters over the same samples
        alike = world.trainers.moved(trainer, called[0].start_ns, called[-1].end_ns)
        return alike is not None and alike[which] * 2 >= by_all
    return _touched(trainer, part, world)  # no counter of its process grew: it is a mapping


def _outlasts(trainer: ProcessKey, part: Transfer, mine: LastEnds, world: World) -> bool:
    """Whether the part went on long after `mine`, while the main thread transferred nothing."""
    start_ns, end_ns = _span(part)
    until_ns = mine.before(end_ns)
    if not start_ns < until_ns <= end_ns - AT_ONCE_NS:
        return False
    moved = world.trainers.moved(trainer, until_ns + CALLS_NS, end_ns)
    expected = part.bytes * (end_ns - until_ns - CALLS_NS) / (end_ns - start_ns)
    return moved is not None and moved[0 if part.writes else 1] * 2 < expected


def _touched(trainer: ProcessKey, part: Transfer, world: World) -> bool | None:
    """Whether the main thread used the mapping: most samples at files, or running as the only thread.

    None: it ran, for an unknown purpose. A thread that slept elsewhere touched nothing.
    """
    looks = world.threads
    use = looks.use(trainer, trainer[0], part.start_ns, part.end_ns)
    if use is None or not use.looks:
        return None
    at_files = sum(use.looks_in.get(word, 0) for word in _AT_FILES)
    if 2 * at_files > use.looks:
        return True
    if 2 * (at_files + sum(use.looks_in.get(word, 0) for word in _RUNNING)) <= use.looks:
        return False
    return True if len(looks.threads(trainer, part.start_ns, part.end_ns)) == 1 else None
