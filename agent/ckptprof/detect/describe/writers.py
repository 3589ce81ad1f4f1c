"""The processes that transferred the bytes of a checkpoint: rank, start, end and role in the job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.world.jobs import Jobs
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.world import World
from ckptprof.model import Run, Writer


def by_process(parts: Iterable[Transfer]) -> dict[ProcessKey, list[Transfer]]:
    """Group parts by process, in order of appearance."""
    found: dict[ProcessKey, list[Transfer]] = {}
    for part in parts:
        found.setdefault(part.process, []).append(part)
    return found


def list_writers(candidate: Candidate, world: World, roles: Mapping[ProcessKey, str]) -> dict[ProcessKey, Writer]:
    """List the processes with their `roles` in the job, most bytes first."""
    writers = {
        process: Writer(
            pid=process[0],
            comm=world.jobs.comm(process),
            bytes=sum(part.bytes for part in parts),
            rank=_rank(process, parts, world.jobs),
            start_ns=world.clock.wall(min(part.start_ns for part in parts)),
            end_ns=world.clock.wall(_end_ns(parts)),
            role=roles[process],
        )
        for process, parts in by_process(candidate.parts).items()
    }
    return dict(sorted(writers.items(), key=lambda item: -item[1].bytes))


def _end_ns(parts: Iterable[Transfer]) -> int:
    """End of its last part, ignoring a marker, which one rank writes after all others have finished."""
    return max((not (part.writes and part.name.commit), part.end_ns) for part in parts)[1]


def _rank(process: ProcessKey, parts: list[Transfer], jobs: Jobs) -> int | None:
    """Rank from its environment, else from the names of what it wrote, if these agree."""
    own_rank = jobs.rank(process)
    if own_rank is not None or not parts[0].writes:  # a reader may read parts of other ranks
        return own_rank
    ranks_in_names = {part.name.rank for part in parts if part.name.rank is not None}
    return next(iter(ranks_in_names)) if len(ranks_in_names) == 1 else None


def name_writer(process: ProcessKey, candidate: Candidate, jobs: Jobs) -> str:
    """Name one of its writers for a sentence: its rank, program and pid."""
    rank = _rank(process, [part for part in candidate.parts if part.process == process], jobs)
    name = f"{jobs.comm(process)} {process[0]}"
    return name if rank is None else f"rank {rank} ({name})"


def count_ranks(candidate: Candidate, jobs: Jobs) -> int:
    """Count the ranks of its job: by the environment, else by the names, else by the processes.

    Helpers of a rank do not count. The writer of a file that was found in its folder is uncertain, its name is not.
    """
    declared = [ranks for process in candidate.processes if (ranks := jobs.ranks(process)) is not None]
    if declared:
        return max(declared)
    writing_ranks = len({jobs.rank_process(process) for process in candidate.processes})
    if not candidate.writes:  # a reader may read parts of other ranks
        return writing_ranks
    names = [part.name for part in candidate.parts]
    found = [writing_ranks, *(name.world for name in names if name.world is not None)]
    certain = {(part.process, part.name.rank) for part in candidate.parts if not part.is_credited}
    named = [process for process, rank in certain if rank is not None]
    if len(named) == len(set(named)):  # else one rank made several parts
        found += [name.rank + 1 for name in names if name.rank is not None]
    return max(found)


def find_common_run(candidate: Candidate, jobs: Jobs) -> Run | None:
    """Find the run that joins it with checkpoints of other nodes, if its processes agree on one."""
    runs = {run.key: run for process in candidate.processes if (run := jobs.run(process)) is not None}
    return next(iter(runs.values())) if len(runs) == 1 else None
