"""How many ranks a checkpoint is of."""

from __future__ import annotations

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.world.jobs import Jobs
from ckptprof.detect.world.keys import ProcessKey


def ranks_of(candidate: Candidate, jobs: Jobs) -> int:
    """Return the ranks of its job: as the environment tells, else the names, else by who moved it.

    Those that only help a rank to write are none. Who wrote a file that was found in its folder is not certain: its
    name is.
    """
    told = [ranks for process in candidate.processes if (ranks := jobs.ranks(process)) is not None]
    if told:
        return max(told)
    certain: dict[ProcessKey, set[int]] = {}
    highest = -1
    worlds = [part.name.world for part in candidate.parts if part.name.world is not None]
    for part in candidate.parts:
        if part.name.rank is None:
            continue
        highest = max(highest, part.name.rank)
        if not part.is_credited:
            certain.setdefault(part.process, set()).add(part.name.rank)
    seen = len({jobs.works_for(process) for process in candidate.processes})
    if not candidate.writes:  # whoever reads the parts of others is not as many
        return seen
    if any(len(named) > 1 for named in certain.values()):  # parts of one rank's own making
        return max(seen, *worlds) if worlds else seen
    return max(seen, highest + 1, *worlds)
