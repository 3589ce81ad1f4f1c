"""Who writes for whom: the process that trains, and its threads, children and daemons that move the bytes."""

from __future__ import annotations

from dataclasses import dataclass, field

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.knowledge import Knowledge
from ckptprof.detect.transfers.model.tolerances import CALLS_NS
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.world.jobs import Jobs
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.training_threads import TrainingThreads
from ckptprof.frameworks.launchers import LAUNCHERS
from ckptprof.frameworks.runtimes import NUMERIC_RUNTIMES, TRAINING_RUNTIMES

_AT_FILES = ("sync", "close", "fault")  # calls that move data are counted
_RUNNING = ("running", "unknown")
_TELLING = 20  # of a flood of files the trace drops most: the writer of one byte in so many is that of all
_MAX_DEPTH = 6
_ACTIVE_SLICES = 0.3  # a second: a launcher that waits for its workers has none
_RECENT_NS = 30_000_000_000
_DAEMON_NS = 10_000_000_000  # older than the save by so much: it was not started for it


@dataclass(slots=True)
class WriterGroup:
    """One process that trains, and what moved its bytes."""

    trainer: ProcessKey
    own: list[tuple[int, int]] = field(default_factory=list)  # (start, end) of what its main thread moved
    others: list[tuple[int, int]] = field(default_factory=list)  # of what other threads and processes moved
    own_bytes: int = 0
    other_bytes: int = 0
    unknown_bytes: int = 0  # by itself, but by which thread was not seen
    unknown: list[tuple[int, int]] = field(default_factory=list)
    roles: dict[ProcessKey, str] = field(default_factory=dict)


def writer_groups(candidate: Candidate, known: Knowledge) -> list[WriterGroup]:
    """Return a crew for each process that trains."""
    jobs, trainers = known.world.jobs, known.world.trainers
    crews: dict[ProcessKey, WriterGroup] = {}
    by_process: dict[ProcessKey, list[Transfer]] = {}
    for part in candidate.parts:
        by_process.setdefault(part.process, []).append(part)
    for process, parts in by_process.items():
        trainer = trainer_of(process, candidate.start_ns, jobs, trainers)
        crew = crews.setdefault(trainer, WriterGroup(trainer))
        if process == trainer:
            crew.roles[process] = _own(crew, parts, known)
        else:
            crew.roles[process] = _relation(process, candidate.start_ns, trainers)
            crew.other_bytes += sum(part.bytes for part in parts)
            crew.others += [(part.start_ns, part.end_ns) for part in parts]
    return list(crews.values())


def trainer_of(process: ProcessKey, at_ns: int, jobs: Jobs, trainers: TrainingThreads) -> ProcessKey:
    """Return the process that trains: itself, or the topmost active process above it of its job and rank."""
    rank, job, found = jobs.rank(process), jobs.job_of(process), []
    current: ProcessKey | None = process
    for _ in range(_MAX_DEPTH):
        info = jobs.info(current) if current is not None else None
        if current is None or info is None:
            break
        runs = set(info.runtimes) & (TRAINING_RUNTIMES | NUMERIC_RUNTIMES) or jobs.rank(current) is not None
        same = jobs.rank(current) == rank and jobs.job_of(current) == job
        if runs and same and info.program not in LAUNCHERS:
            found.append(current)
        parent = jobs.parent(current)
        current = parent if parent != current else None
    active = [one for one in found if _was_active(one, at_ns, trainers)]
    return (active or found or [process])[-1]


def _was_active(process: ProcessKey, at_ns: int, trainers: TrainingThreads) -> bool:
    stretches = trainers.stretches(process, at_ns - _RECENT_NS, at_ns - 1)
    seen_ns = sum(one.end_ns - one.start_ns for one in stretches)
    if seen_ns < 1_000_000_000:
        return False
    return sum(one.slices for one in stretches) * 1e9 / seen_ns >= _ACTIVE_SLICES or any(
        one.share > 0.5 for one in stretches
    )


def _own(crew: WriterGroup, parts: list[Transfer], known: Knowledge) -> str:
    """Add what a process that trains moved itself, by its main thread or another; return its role."""
    by_others = crew.other_bytes
    for part in parts:
        if not part.threads:
            _by_looks(crew, part, known)
            continue
        main = [session for session in part.threads if session.tid == session.pid]
        mine = sum(session.bytes for session in main)
        total = sum(session.bytes for session in part.threads)
        span = (part.start_ns, part.end_ns)
        if mine * 2 >= total:
            crew.own.append(span)
        else:
            crew.others.append(span)
            crew.own += [(session.first_ns, session.last_ns) for session in main]
        crew.own_bytes += mine
        crew.other_bytes += max(0, total - mine)
    if crew.other_bytes == by_others and crew.own_bytes * _TELLING >= crew.unknown_bytes > 0:
        crew.own += crew.unknown
        crew.own_bytes += crew.unknown_bytes
        crew.unknown, crew.unknown_bytes = [], 0
    return "trainer" if crew.own_bytes + crew.unknown_bytes >= crew.other_bytes else "thread"


def _by_looks(crew: WriterGroup, part: Transfer, known: Knowledge) -> None:
    span = (part.start_ns, part.end_ns)
    is_own = _is_own(crew.trainer, part, known)
    if is_own is None:
        crew.unknown.append(span)
        crew.unknown_bytes += part.bytes
    elif is_own:
        crew.own.append(span)
        crew.own_bytes += part.bytes
    else:
        crew.others.append(span)
        crew.other_bytes += part.bytes


def _is_own(trainer: ProcessKey, part: Transfer, known: Knowledge) -> bool | None:
    """Return whether the main thread moved most of a part whose operations were not counted; None if nothing tells."""
    moved = known.world.trainers.moved(trainer, part.start_ns - CALLS_NS, part.end_ns + CALLS_NS)
    if moved is None:
        return None
    if (moved[0] if part.writes else moved[1]) * 2 >= part.bytes:
        return True
    return _touched(trainer, part, known) if _is_by_mapping(trainer, part, known) else False


def _is_by_mapping(trainer: ProcessKey, part: Transfer, known: Knowledge) -> bool:
    """Return whether no counter of its process tells of it."""
    history = known.world.histories.get(trainer)
    called = history.between(part.start_ns - CALLS_NS, part.end_ns + CALLS_NS) if history is not None else []
    return 2 * sum(one.written_bytes if part.writes else one.returned_bytes for one in called) < part.bytes


def _touched(trainer: ProcessKey, part: Transfer, known: Knowledge) -> bool | None:
    """Return whether its main thread used the mapping: most looks met it at files, or it ran and there is no other.

    None: it ran, and nothing tells whether it was this. What slept elsewhere touched nothing.
    """
    use = known.world.host.threads.use(trainer, trainer[0], part.start_ns, part.end_ns)
    if use is None or not use.looks:
        return None
    at_files = sum(use.looks_in.get(word, 0) for word in _AT_FILES)
    if 2 * at_files > use.looks:
        return True
    if 2 * (at_files + sum(use.looks_in.get(word, 0) for word in _RUNNING)) <= use.looks:
        return False
    return True if len(known.world.host.threads.threads(trainer, part.start_ns, part.end_ns)) == 1 else None


def _relation(process: ProcessKey, start_ns: int, trainers: TrainingThreads) -> str:
    first_ns = trainers.first_ns(process)
    return "daemon" if first_ns is not None and first_ns < start_ns - _DAEMON_NS else "child"
