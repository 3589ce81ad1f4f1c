"""Who moved the bytes of a checkpoint: each process with its rank, its own begin and end, and its part in the job."""

from __future__ import annotations

from collections.abc import Mapping

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.world.clock import Clock
from ckptprof.detect.world.jobs import Jobs
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.frameworks.runtimes import TRAINING_RUNTIMES
from ckptprof.model import Writer


def writers_of(candidate: Candidate, jobs: Jobs, clock: Clock, roles: Mapping[ProcessKey, str]) -> tuple[Writer, ...]:
    """Return the processes, the one that moved most first; `roles`: what is known of them already."""
    by_process: dict[ProcessKey, list[Transfer]] = {}
    for part in candidate.parts:
        by_process.setdefault(part.process, []).append(part)
    writers = [
        Writer(
            pid=process[0],
            comm=jobs.comm(process),
            bytes=sum(part.bytes for part in parts),
            rank=_rank(process, parts, jobs),
            start_ns=clock.wall(min(part.start_ns for part in parts)),
            end_ns=clock.wall(max(part.end_ns for part in parts)),
            role=roles.get(process) or _role(process, parts, jobs),
        )
        for process, parts in by_process.items()
    ]
    return tuple(sorted(writers, key=lambda writer: -writer.bytes))


def _rank(process: ProcessKey, parts: list[Transfer], jobs: Jobs) -> int | None:
    """Return its rank: from its environment, else from the names of what it wrote, if these agree."""
    told = jobs.rank(process)
    if told is not None or not parts[0].writes:  # a reader may read the parts of others
        return told
    named = {part.name.rank for part in parts if part.name.rank is not None}
    return next(iter(named)) if len(named) == 1 else None


def _role(process: ProcessKey, parts: list[Transfer], jobs: Jobs) -> str | None:
    """Return which of its threads moved the bytes, as far as that was seen; a helper of a trainer is a child."""
    info = jobs.info(process)
    if info is None or not TRAINING_RUNTIMES & set(info.runtimes):
        return None
    parent, rank = jobs.parent(process), jobs.rank(process)
    if parent is not None and rank is not None and rank == jobs.rank(parent):
        return "child"
    first = others = 0
    for part in parts:
        for session in part.threads:
            if session.tid == session.pid:
                first += session.bytes
            else:
                others += session.bytes
    if not first and not others:
        return None
    return "trainer" if first >= others else "thread"
